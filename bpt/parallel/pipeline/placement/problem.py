"""The problem of placement: layers with costs, what they hand to each other, and devices; and a Placement of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_blocks import conv_blocks, named_blocks
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.layer_spec import count
from bpt.graph.stages import inseparable_runs
from bpt.graph.transfers import is_source, wants_diff

if TYPE_CHECKING:  # they know torch, which is not needed here
    from bpt.config.plan.run_plan import PipelineSpec
    from bpt.config.precision import Precision


@dataclass(frozen=True)
class Cost:
    """The cost of one layer, for one replica's part of a batch.

    Attributes:
        name: of the layer.
        forward, backward: seconds on a device of speed 1; where nothing was measured, FLOPs (a speed is then in
            FLOP/s, or only a ratio).
        parameters: bytes of its parameters and of what training keeps for them.
        activations: bytes that training keeps of its tops until it has run backward.
        trained: bytes of the values of the parameters that it trains, alone.
        largest: bytes of the values of the largest of these.
        diffs: bytes of the diffs of its tops and bottoms, which are there while it runs backward.
        weights: the part of ``backward`` that a backward pass in two computes in its second part.
    """

    name: str
    forward: float
    backward: float
    parameters: int = 0
    activations: float = 0
    trained: int = 0
    largest: int = 0
    diffs: float = 0
    weights: float = 0.0

    @property
    def work(self) -> float:
        """The seconds of forward and backward."""
        return self.forward + self.backward


def costs_of(
    graph: LayerGraph,
    precision: Precision,
    measured: Mapping[str, tuple[float, float]] | None = None,
    histories: int = 1,
    replicas: int = 1,
) -> tuple[Cost, ...]:
    """Return the cost of each layer, in order.

    A layer without bottoms costs no time: data are read ahead. Without measurements a layer costs its FLOPs forward
    and twice as many backward, if it runs backward at all. A trained parameter takes memory for its values, its
    gradient and ``histories`` blobs of its update rule, any other one for its values only; shared ones count at their
    owner's layer. Half of the backward pass of a layer that multiplies by weights is for the gradients of these.

    Args:
        precision: says how much memory an element takes.
        measured: layer name → seconds forward and backward, for the whole batch.
        histories: blobs that the update rule keeps for each parameter (momentum: 1; Adam: 2).
        replicas: the number of replicas that share the batch evenly, and so times and activations.

    Raises:
        UserError: ``measured`` lacks a layer.
    """
    itemsizes = blob_itemsizes(graph, precision)
    return tuple(_cost(graph, node, precision, itemsizes, measured, histories, replicas) for node in graph.nodes)


def _cost(
    graph: LayerGraph,
    node: LayerNode,
    precision: Precision,
    itemsizes: Sequence[int],
    measured: Mapping[str, tuple[float, float]] | None,
    histories: int,
    replicas: int,
) -> Cost:
    forward, backward = _times(node, measured)
    own = [graph.params[index] for index in node.params if not graph.params[index].shared]
    sizes = [(precision.master.itemsize * count(param.shape), bool(param.learnable and param.lr_mult)) for param in own]
    trained = [size for size, learns in sizes if learns]
    return Cost(
        node.name,
        forward / replicas,
        backward / replicas,
        sum(size * (2 + histories if learns else 1) for size, learns in sizes),
        _activations(graph, node, itemsizes) / replicas,
        sum(trained),
        max(trained, default=0),
        _diffs(graph, node, itemsizes) / replicas,
        backward / replicas * _weights_part(graph, node, bool(trained)),
    )


def _times(node: LayerNode, measured: Mapping[str, tuple[float, float]] | None) -> tuple[float, float]:
    if is_source(node):
        return 0.0, 0.0
    if measured is None:
        return float(node.flops), 2.0 * node.flops if node.needs_backward else 0.0
    if node.name in measured:
        return measured[node.name]
    if node.type == "Split":
        return 0.0, 0.0
    raise UserError(f'the measured costs have no layer "{node.name}"; measure this net anew')


def _weights_part(graph: LayerGraph, node: LayerNode, is_trained: bool) -> float:
    """Return the part of a layer's backward pass that a pass in two computes in its second part."""
    if not (is_trained and node.layer_type.multiplies):
        return 0.0
    return 0.5 if any(wants_diff(graph, edge) for edge in node.bottoms) else 1.0


def _activations(graph: LayerGraph, node: LayerNode, itemsizes: Sequence[int]) -> float:
    if node.layer_type.is_view:
        return 0.0
    return node.layer_type.saved_for_backward(node.spec) * _bytes(graph, node.tops, itemsizes)


def _diffs(graph: LayerGraph, node: LayerNode, itemsizes: Sequence[int]) -> int:
    if not node.needs_backward:
        return 0
    return _bytes(graph, [edge for edge in (*node.tops, *node.bottoms) if wants_diff(graph, edge)], itemsizes)


def _bytes(graph: LayerGraph, edges: Iterable[int], itemsizes: Sequence[int]) -> int:
    return sum(itemsizes[edge] * count(graph.edges[edge].shape) for edge in edges)


@dataclass(frozen=True)
class Device:
    """The device that runs one stage.

    Attributes:
        name: for messages.
        speed: work per second, in the unit of the costs: 1 if they are seconds on this very device.
        memory: bytes.
        capacity: the part of all layers' work that it may get at most: d_j of Eq. 6, where p_i add up to 1.
    """

    name: str
    speed: float = 1.0
    memory: float = math.inf
    capacity: float = math.inf


@dataclass(frozen=True)
class DeviceLink:
    """The link between any two devices: ``latency`` in seconds, ``bandwidth`` in bytes a second."""

    latency: float = 0.0
    bandwidth: float = math.inf

    def seconds(self, size: float, messages: int = 1) -> float:
        """Return the seconds that ``size`` bytes take in a number of messages."""
        return messages * self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Crossing:
    """A blob that other layers read; it is sent once to each device with a reader.

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
    """The problem that a placement solves.

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
        blocks: runs like ``together``, of layers that are to stay on one device because they belong together.
        adds: whether gradients add up over micro-batches or passes: the one that is added needs room of its own.
        replicas: the number of pipelines that share the net's batch; costs and crossings are those of one.
        gathers: layers that run once for all micro-batches.
        recomputes: devices keep what they receive, and run forward again before they run backward, except the last run
            of layers where its backward pass follows at once.
    """

    costs: tuple[Cost, ...]
    crossings: tuple[Crossing, ...]
    devices: tuple[Device, ...]
    link: DeviceLink = DeviceLink()
    together: tuple[tuple[int, int], ...] = ()
    rule: int = pb.PipelineParameter.GPIPE
    micro_batches: int = 1
    sources: tuple[int, ...] = ()
    beside_sources: tuple[tuple[int, int], ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    adds: bool = False
    replicas: int = 1
    gathers: frozenset[int] = frozenset()
    recomputes: bool = False

    def __post_init__(self) -> None:
        assert self.costs and self.devices and self.micro_batches >= 1
        assert all(device.speed > 0 and device.memory >= 0 < device.capacity for device in self.devices), self.devices

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """The layers at which a partition may begin, ascending; the first is 0."""
        runs = (*self.together, *self.beside_sources, *self.blocks)
        inside = {layer for start, end in runs for layer in range(start + 1, end)}
        return tuple(layer for layer in range(len(self.costs)) if layer not in inside)

    @property
    def filling(self) -> float:
        """The part φ of a step in which nothing overlaps, as ``StepTime`` counts it.

        1 / micro-batches where these travel one behind the other, a third of that under ZERO_BUBBLE; all of it under
        SEQUENTIAL, none under DELAYED.
        """
        match self.rule:
            case pb.PipelineParameter.SEQUENTIAL:
                return 1.0
            case pb.PipelineParameter.DELAYED:
                return 0.0
            case pb.PipelineParameter.ZERO_BUBBLE:
                return 1.0 / (3 * self.micro_batches)
        return 1.0 / self.micro_batches

    @property
    def work(self) -> float:
        """The work of all layers."""
        return math.fsum(cost.work for cost in self.costs)


def problem_of(
    graph: LayerGraph,
    devices: Sequence[Device],
    link: DeviceLink,
    param: PipelineSpec,
    precision: Precision,
    measured: Mapping[str, tuple[float, float]] | None = None,
    histories: int = 1,
    together: Iterable[tuple[int, int]] = (),
    passes: int = 1,
    replicas: int = 1,
    gathers: frozenset[int] = frozenset(),
) -> Problem:
    """Return the problem of a net.

    Args:
        graph: in phase TRAIN.
        devices: in order of the stages.
        param: its ``schedule``, ``micro_batches``, ``recompute`` and ``partition_by`` count; under DELAYED, a batch
            travels whole.
            Blocks that layers name stay together in any case.
        precision, measured, histories: see ``costs_of``.
        together: runs of layers ``[start, end)`` that must not be cut, besides those of ``inseparable_runs`` (say, what
            runs on slices of shards).
        passes: of an iteration (iter_size).
        replicas: the number of pipelines that share the net's batch evenly.
        gathers: layers that run once for all micro-batches of a batch. If there are any, all micro-batches go forward
            before one goes backward, and so GPIPE is the schedule that there is.
    """
    sources = tuple(node.index for node in graph.nodes if is_source(node))
    micro_batches = 1 if param.schedule == pb.PipelineParameter.DELAYED else param.micro_batches
    return Problem(
        costs_of(graph, precision, measured, histories, replicas),
        _crossings(graph, blob_itemsizes(graph, precision), replicas),
        tuple(devices),
        link,
        (*inseparable_runs(graph), *together),
        pb.PipelineParameter.GPIPE if gathers else param.schedule,
        micro_batches,
        sources,
        tuple(_beside_sources(graph)),
        _blocks(graph, param),
        micro_batches > 1 or passes > 1,
        replicas,
        gathers,
        param.recompute,
    )


def _crossings(graph: LayerGraph, itemsizes: Sequence[int], replicas: int) -> tuple[Crossing, ...]:
    """Return a crossing for each blob that is read; the tops of a Split are one."""
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
                itemsizes[first.index] * count(first.shape) / replicas,
                any(wants_diff(graph, edge) for edge in edges),
            )
        )
    return tuple(found)


def _blocks(graph: LayerGraph, param: PipelineSpec) -> tuple[tuple[int, int], ...]:
    by_rule = param.partition_by == pb.PipelineParameter.CONV_BLOCKS and param.allocator != pb.PipelineParameter.MANUAL
    return (*named_blocks(graph).values(), *(conv_blocks(graph) if by_rule else ()))


def _beside_sources(graph: LayerGraph) -> list[tuple[int, int]]:
    """Return the runs that give a stage more than layers without bottoms and the Splits behind them."""
    idle: set[int] = set()
    for node in graph.nodes:
        makers = {graph.edges[edge].producer for edge in node.bottoms}
        if not makers or (node.type == "Split" and makers <= idle):
            idle.add(node.index)
    busy = [node.index for node in graph.nodes if node.index not in idle]
    first = busy[0] if busy else len(graph) - 1
    runs = [(0, first + 1)] if first else []
    return runs + [(layer - 1, layer + 1) for layer in sorted(idle) if layer > first]


@dataclass(frozen=True)
class Placement:
    """The devices of the partitions.

    Attributes:
        starts: the first layer of each partition, ascending; the first is 0.
        stages: the device of each partition. Neighbours may be on the same one.
        convergence: of GABRA: the fitness of the best chromosome at the start and after each generation.
    """

    starts: tuple[int, ...]
    stages: tuple[int, ...]
    convergence: tuple[float, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        assert len(self.starts) == len(self.stages) and self.starts[0] == 0, self
        assert list(self.starts) == sorted(set(self.starts)), self.starts


def joined(starts: Sequence[int], stages: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the placement with neighbours on one device joined."""
    kept = [i for i in range(len(starts)) if not i or stages[i] != stages[i - 1]]
    return tuple(starts[i] for i in kept), tuple(stages[i] for i in kept)
