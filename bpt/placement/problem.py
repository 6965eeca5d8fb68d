"""The problem of placement: layers with costs, what they hand to each other, and the devices that shall run them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bpt.graph.layer_graph import LayerGraph
from bpt.graph.spec import count
from bpt.graph.stages import bound_together
from bpt.graph.transfers import is_source, wants_diff
from bpt.placement.costs import BYTES, Cost, costs_of
from bpt.proto import bpt_pb2 as pb


@dataclass(frozen=True)
class Device:
    """What runs one stage.

    Attributes:
        name: for messages.
        speed: work per second, in the unit of the costs: 1 if they are seconds on this very device.
        memory: bytes.
    """

    name: str
    speed: float = 1.0
    memory: float = math.inf


@dataclass(frozen=True)
class Link:
    """What lies between any two devices: ``latency`` in seconds, ``bandwidth`` in bytes a second."""

    latency: float = 0.0
    bandwidth: float = math.inf

    def seconds(self, size: float, messages: int = 1) -> float:
        """What ``size`` bytes take in so many messages."""
        return messages * self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Crossing:
    """A blob that other layers read: it is sent once to each device on which one of them runs.

    Attributes:
        producer: the layer that makes it.
        readers: layers, ascending.
        bytes: of all that one replica has of a batch.
        diff: whether a diff, as large, goes back.
    """

    producer: int
    readers: tuple[int, ...]
    bytes: float
    diff: bool = True


@dataclass(frozen=True)
class Problem:
    """What a placement is sought for.

    Attributes:
        costs: one a layer, in order of the net.
        crossings: the blobs that layers hand to each other.
        devices: in order of the stages.
        link: between any two of them.
        together: runs of layers ``[start, end)``, each of which must stay on one device.
        rule: a ``pb.PipelineParameter.Schedule``: it says how many activations are alive at once.
        micro_batches: parts in which a batch travels.
        sources: layers without bottoms, ascending: they run on stage 0, wherever they stand.
        beside_sources: runs like ``together``, that keep a stage from having nothing but data layers.
        adds: whether gradients add up over micro-batches or passes: the one that is added needs room of its own.
        replicas: among so many pipelines the net's batch is divided; costs and crossings are those of one.
    """

    costs: tuple[Cost, ...]
    crossings: tuple[Crossing, ...]
    devices: tuple[Device, ...]
    link: Link = Link()
    together: tuple[tuple[int, int], ...] = ()
    rule: int = pb.PipelineParameter.GPIPE
    micro_batches: int = 1
    sources: tuple[int, ...] = ()
    beside_sources: tuple[tuple[int, int], ...] = ()
    adds: bool = False
    replicas: int = 1

    def __post_init__(self) -> None:
        assert self.costs and self.devices and self.micro_batches >= 1
        assert all(device.speed > 0 and device.memory >= 0 for device in self.devices), self.devices

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """The layers at which a partition may begin, ascending; the first is 0."""
        runs = (*self.together, *self.beside_sources)
        inside = {layer for start, end in runs for layer in range(start + 1, end)}
        return tuple(layer for layer in range(len(self.costs)) if layer not in inside)

    @property
    def filling(self) -> float:
        """The part of a step in which nothing overlaps, as ``StepTime`` counts it.

        1 / micro-batches where these travel one behind the other; all of it under SEQUENTIAL, none under DELAYED.
        """
        match self.rule:
            case pb.PipelineParameter.SEQUENTIAL:
                return 1.0
            case pb.PipelineParameter.DELAYED:
                return 0.0
        return 1.0 / self.micro_batches

    @property
    def work(self) -> float:
        """Of all layers."""
        return math.fsum(cost.work for cost in self.costs)


def problem_of(
    graph: LayerGraph,
    devices: Sequence[Device],
    link: Link,
    param: pb.PipelineParameter,
    measured: Mapping[str, tuple[float, float]] | None = None,
    histories: int = 1,
    together: Iterable[tuple[int, int]] = (),
    passes: int = 1,
    replicas: int = 1,
) -> Problem:
    """The problem of a net.

    Args:
        graph: in phase TRAIN.
        devices: in order of the stages.
        param: its ``schedule`` and ``micro_batches`` count; under DELAYED, a batch travels whole.
        measured, histories: see ``costs_of``.
        together: runs of layers ``[start, end)`` that must not be cut, besides those of ``bound_together`` (say, what
            runs on slices of shards).
        passes: of an iteration (iter_size).
        replicas: among so many pipelines the net's batch is divided evenly.
    """
    sources = tuple(node.index for node in graph.nodes if is_source(node))
    micro_batches = 1 if param.schedule == pb.PipelineParameter.DELAYED else param.micro_batches
    return Problem(
        costs_of(graph, measured, histories, replicas),
        _crossings(graph, replicas),
        tuple(devices),
        link,
        (*bound_together(graph), *together),
        param.schedule,
        micro_batches,
        sources,
        tuple(_beside_sources(graph)),
        micro_batches > 1 or passes > 1,
        replicas,
    )


def _crossings(graph: LayerGraph, replicas: int) -> tuple[Crossing, ...]:
    """One for each blob that is read; the tops of a Split are one."""
    edges_of: dict[tuple[int, int], list[int]] = {}
    for edge in graph.edges:
        if edge.consumer is not None:
            copies = graph.nodes[edge.producer].type == "Split"
            edges_of.setdefault((edge.producer, -1 if copies else edge.index), []).append(edge.index)
    found = []
    for edges in edges_of.values():
        readers = {graph.edges[edge].consumer for edge in edges}
        first = graph.edges[edges[0]]
        found.append(
            Crossing(
                first.producer,
                tuple(sorted(reader for reader in readers if reader is not None)),
                BYTES * count(first.shape) / replicas,
                any(wants_diff(graph, edge) for edge in edges),
            )
        )
    return tuple(found)


def _beside_sources(graph: LayerGraph) -> list[tuple[int, int]]:
    """Runs that keep a stage from having nothing but layers without bottoms, and Splits of what these make."""
    idle: set[int] = set()
    for node in graph.nodes:
        makers = {graph.edges[edge].producer for edge in node.bottoms}
        if not makers or (node.type == "Split" and makers <= idle):
            idle.add(node.index)
    busy = [node.index for node in graph.nodes if node.index not in idle]
    first = busy[0] if busy else len(graph) - 1
    runs = [(0, first + 1)] if first else []
    return runs + [(layer - 1, layer + 1) for layer in sorted(idle) if layer > first]
