"""Forecasts for the papers' own machines, which are not here: 4 GPUs, 8 GPUs, 16 unlike replicas.

CGDP: its cost model (Eq. 1 and 2), fed with the times that the paper prints of AlexNet on four P100 (Tables 2 and 3).
What AlexNet takes for an operation and for an element is taken for the other networks as well.

StaticLB: bpt's partitioner, for 16 replicas of which half are a quarter as fast as the others.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from bpt.config.plan.resolve import resolve
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.batch_shares import Static, Uniform
from bpt.parallel.balance.speed import SpeedFunction
from bpt.parallel.cgdp.chunks import chunks
from bpt.parallel.cgdp.cost_model import (
    ChunkCosts,
    TrainedLayerCost,
    backward_time,
    computing_time,
    final_overhead,
    synchronisation_time,
)
from scripts.benches.cgdp.nets import PAPER, solver_source

VALUES = Path(__file__).resolve().parent / "values"


@cache
def printed(paper: str) -> dict[tuple[str, str], float]:
    """Return the values that a paper prints, by item and quantity."""
    with (VALUES / f"{paper}.csv").open(newline="") as file:
        return {(row["item"], row["quantity"]): float(row["value"]) for row in csv.DictReader(file)}


# CGDP

MILLI, MILLION = 1e-3, 1e6
GIB = 2**30
LAYERS = range(8, 0, -1)  # of AlexNet, from the top one down
PHASE = "BVLC/Caffe, {}"
BUFFERS = {"CGDP": 0, "TREE": 2}  # gradients of other GPUs that the root of a tree of four holds
COPIES = 3  # of the parameters: weights, gradients, momentum
MEMORY = 16 * GIB  # of a P100


def _phase(name: str) -> float:
    """Return the seconds of a phase of OrigDP, from Table 2."""
    return printed("cgdp")["Table 2", PHASE.format(name)] * MILLI


@dataclass(frozen=True)
class LayerWork:
    """A layer with trained parameters, and the layers without parameters behind it.

    Attributes:
        elements: of its parameters.
        flops: of a forward pass of a batch.
    """

    elements: int
    flops: int


@cache
def graph_of(net: str) -> LayerGraph:
    """Return a network with the batch of the paper's Table 1."""
    images = PAPER[net]
    return build_graph_of(resolve(solver_source(net, images.size, images.batch)).train)


@cache
def layers_of(net: str) -> tuple[LayerWork, ...]:
    """Return the layers that the paper counts, from the top down: convolutions and fully connected layers.

    The parameters of other layers, such as Scale, count for the layer below them.
    """
    graph = graph_of(net)
    found: list[list[int]] = []
    for node in graph.nodes:
        if node.type in ("Convolution", "InnerProduct"):
            found.append([0, 0])
        if found:
            found[-1][0] += sum(count(graph.params[index].shape) for index in node.params)
            found[-1][1] += node.flops
    return tuple(LayerWork(*each) for each in reversed(found))


@cache
def costs_of(net: str) -> ChunkCosts:
    """Return the costs of a network on four P100, by what AlexNet takes there for an operation and for an element.

    Table 2's backward is 7 ms longer with CGDP than with OrigDP. It is t_as, which the paper does not divide among the
    layers; here it goes by their elements.
    """
    table, alexnet = printed("cgdp"), layers_of("alexnet")
    copied, summed, back = (
        sum(table["Table 3", f"layer {layer}: {name}"] for layer in LAYERS) * MILLI
        for name in ("copy from GPU to CPU", "accumulation on CPUs", "copy from CPU to GPU")
    )
    elements = sum(table["Table 3", f"AlexNet: parameters of layer {layer}"] for layer in LAYERS) * MILLION
    second = _phase("backward") / sum(layer.flops for layer in alexnet)
    slowed = table["Table 2", "TRL/Caffe, backward"] * MILLI - _phase("backward")
    layers = []
    for number, layer in enumerate(layers_of(net)):
        times = [each * layer.elements / elements for each in (copied, summed, back)]
        layers.append(TrainedLayerCost(f"layer {number}", layer.elements, layer.flops * second, *times))
    return ChunkCosts(tuple(layers), per_element=slowed / elements)


def _rest(net: str) -> float:
    """Return the seconds of forward and update."""
    alexnet = layers_of("alexnet")
    flops = sum(layer.flops for layer in layers_of(net)) / sum(layer.flops for layer in alexnet)
    elements = sum(layer.elements for layer in layers_of(net)) / sum(layer.elements for layer in alexnet)
    return _phase("forward") * flops + _phase("update") * elements


def original_exchange(net: str) -> float:
    """Return the seconds of OrigDP's broadcast and accumulation, by AlexNet's and the number of parameters."""
    elements = sum(layer.elements for layer in layers_of(net)) / sum(layer.elements for layer in layers_of("alexnet"))
    return (_phase("broadcast") + _phase("accumulation of gradients")) * elements


@dataclass(frozen=True)
class CgdpForecast:
    """An iteration on four P100, in seconds.

    Attributes:
        chunk: layers of a chunk, the fastest by Eq. 1.
        by_layers: with chunks of one layer.
    """

    computing: float
    original: float
    cgdp: float
    chunk: int
    by_layers: float

    @property
    def speedup(self) -> float:
        return self.original / self.cgdp

    @property
    def efficiency(self) -> float:
        """One GPU's time for the same batch by that of four with CGDP: weak scaling."""
        return self.computing / self.cgdp


@cache
def cgdp_forecast(net: str) -> CgdpForecast:
    """Return the forecast by Eq. 1."""
    costs = costs_of(net)
    rest = _rest(net)
    number = len(costs.layers)
    size = min(range(1, number + 1), key=lambda each: backward_time(costs, chunks(number, each)))
    computing = rest + computing_time(costs)
    fastest, by_layers = (rest + backward_time(costs, chunks(number, each)) for each in (size, 1))
    return CgdpForecast(computing, computing + original_exchange(net), fastest, size, by_layers)


def cgdp_exposed() -> float:
    """Return the seconds that CGDP exposes of AlexNet's exchange, by Eq. 2 without t_as, which Table 2 has in backward.

    The last layer's copies and sum are those of Table 3.
    """
    table = printed("cgdp")
    names = ("copy from GPU to CPU", "accumulation on CPUs", "copy from CPU to GPU")
    last = [table["Table 3", f"layer 1: {name}"] * MILLI for name in names]
    costs = costs_of("alexnet")
    costs = ChunkCosts((*costs.layers[:-1], TrainedLayerCost("layer 1", 0, costs.layers[-1].bp, *last)))
    return final_overhead(costs, [1] * len(costs.layers)) - synchronisation_time(costs, [1] * len(costs.layers))


def vgg_images(exchange: str) -> int:
    """Return how many images of VGG-16 a P100 holds with one exchange.

    Blobs count as data and diff, except those of layers that work in place. Workspaces of the libraries do not count.
    """
    graph = graph_of("vgg16")
    batch = PAPER["vgg16"].batch
    in_place = {"ReLU", "Dropout"}
    blobs = sum(count(graph.edges[top].shape) for node in graph.nodes if node.type not in in_place for top in node.tops)
    image = 2 * 4 * blobs / batch
    parameters = 4 * sum(layer.elements for layer in layers_of("vgg16"))
    return int((MEMORY - (COPIES + BUFFERS[exchange]) * parameters) / image)


# StaticLB

REPLICAS, SLOW = 16, 0.25  # of which half have SLOW of the others' speed, as in scripts/bench balance
TABLE_4_BATCH = 2048


@cache
def balanced_speedup(slow: float = SLOW, replicas: int = REPLICAS, batch: int = TABLE_4_BATCH) -> float:
    """Return the speed-up of shares by speed over equal shares, without exchange."""
    speeds = [1.0 if rank < replicas // 2 else slow for rank in range(replicas)]
    functions = [SpeedFunction.fitted([(batch, batch / speed)]) for speed in speeds]
    times = []
    for balance in (Uniform(), Static(functions)):
        shares = balance.shares(batch, replicas)
        times.append(max(each.seconds(share.count) for each, share in zip(functions, shares, strict=True)))
    return times[0] / times[1]


def slow_speed_for(speedup: float) -> float:
    """Return the speed of the slow half that would give such a speed-up: (1 + r) / 2 r = speed-up."""
    return 1 / (2 * speedup - 1)


def falling(values: Sequence[float]) -> bool:
    """Return whether each value is less than the one before."""
    return all(after < before for before, after in pairwise(values))
