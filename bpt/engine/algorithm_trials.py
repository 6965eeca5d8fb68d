"""Trials that find the fastest algorithm for the kernels of each layer of a net, on blobs of the layer's shapes.

This is what cuDNN's benchmark mode does on GPUs, for CPUs. Each kernel runs a few times by each algorithm, in turn.
Nothing but time depends on these runs: they neither read nor write values of the net.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.base.log import columns
from bpt.engine.algorithm_cache import KernelTimes
from bpt.engine.memory_format import laid_out
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.nn.kernels.algorithm import BY_TORCH, Algorithm, KernelRole
from bpt.nn.layers import LAYERS
from bpt.nn.net import Net

MARGIN = 0.95  # an algorithm is chosen below this fraction of the time by TORCH, because times are noisy
CALL = 50e-6  # seconds that a layer must save, because functions in Python call its kernels then
ROUNDS = 3  # undisturbed runs that count, at least
ENOUGH = 0.005  # seconds of runs after which there are no further ones
MOST = 12  # rounds
LONG = 0.2  # seconds of runs after which there are no further ones, even if all were disturbed
HOPELESS = 1.2  # times the fastest one: such an algorithm is not tried further
SMALL = 2_000_000  # operations of a forward pass below which no kernel of a layer is worth a trial
ITERATIONS = 8  # the trials of a net take about this number of iterations at most; the largest layers come first
LEAST = 0.5  # seconds that they may take in any case


class ChosenKernel(NamedTuple):
    """A kernel that runs by another algorithm than TORCH.

    Attributes:
        layer: the index of the layer in the graph.
        seconds, by_torch: the times by this algorithm and by TORCH, on the slowest rank.
    """

    layer: int
    role: KernelRole
    algorithm: Algorithm
    seconds: float
    by_torch: float


def tried_layers(net: Net) -> list[LayerNode]:
    """Return the layers of a net whose kernels are tried on this rank, those with the most operations first."""
    found = [node for node in net.graph.nodes if _is_tried(net, node)]
    return sorted(found, key=lambda node: -node.flops)


def _is_tried(net: Net, node: LayerNode) -> bool:
    graph = net.graph
    is_large = LAYERS[node.type].chooses_kernels and node.flops >= SMALL and node.needs_backward
    if not is_large or not net.part.runs(node.index) or net.precision.casts:
        return False
    return not any(net.part.slice_of(graph.params[index]) for index in node.params)


def measure(
    net: Net,
    engine: int,
    known: MutableMapping[str, KernelTimes],
    limit: float = math.inf,
    micro_batches: int = 1,
) -> dict[int, KernelTimes]:
    """Return the times of the layers of ``net``, by index; those that are not ``known`` are measured and added to it.

    Args:
        engine: the memory format of blobs.
        known: times by a description of the layer; equal layers are measured once.
        limit: seconds after which no other layer is begun.
        micro_batches: the number of parts in which a batch passes a layer.
    """
    end = time.perf_counter() + limit
    found = {}
    for node in tried_layers(net):
        shape = net.graph.edges[node.bottoms[0]].shape
        shape = (-(-net.context.split(shape[0]).count // micro_batches), *shape[1:])
        roles = _roles(net, node)
        key = _description(net, node, shape, engine, roles)
        if key in known:
            found[node.index] = known[key]
        elif time.perf_counter() < end:
            found[node.index] = times = _times_of(net, node, laid_out(torch.ones(shape), engine), roles)
            if all(times.values()):
                known[key] = times
    return found


def _times_of(net: Net, node: LayerNode, bottom: Tensor, roles: Sequence[KernelRole]) -> KernelTimes:
    with torch.no_grad():
        kernels = net.layer(node).kernels(bottom)
        return {role: fastest(kernels[role]) for role in roles if len(kernels.get(role, ())) > 1}


def _roles(net: Net, node: LayerNode) -> list[KernelRole]:
    wanted = {
        KernelRole.FORWARD: True,
        KernelRole.BY_DATA: node.bottom_needs_diff[0],
        KernelRole.BY_WEIGHTS: net.layer(node).blob(0).requires_grad,
    }
    return [role for role, is_wanted in wanted.items() if is_wanted]


def _description(net: Net, node: LayerNode, shape: Sequence[int], engine: int, roles: Sequence[KernelRole]) -> str:
    """Return all that the times of a layer depend on, except the machine."""
    layer = net.layer(node)
    words = [node.type, "×".join(map(str, shape)), *type(layer).in_words(node.spec.param, len(shape) - 2)]
    blobs = ["×".join(map(str, layer.blob(index).shape)) for index in range(len(layer.blobs))]
    return ", ".join([*filter(None, words), *blobs, f"engine {engine}", "float32", *(role.in_words for role in roles)])


class TimedRun(NamedTuple):
    """The seconds of a run of a kernel, and whether another program took a core from it meanwhile."""

    seconds: float
    disturbed: bool


def timed(run: Callable[[], object]) -> TimedRun:
    """Run a kernel once."""
    before = _preemptions()
    start = time.perf_counter()
    run()
    return TimedRun(time.perf_counter() - start, _preemptions() != before)


def _preemptions() -> int:
    """Return how often the system has taken a core from a thread of this process that had work to do."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def fastest(
    kernels: Mapping[Algorithm, Callable[[], object]], time_run: Callable[[Callable[[], object]], TimedRun] = timed
) -> dict[Algorithm, float]:
    """Return the seconds of the fastest undisturbed run of each kernel that has one; without one of TORCH, nothing.

    The algorithms take turns, after a run of each that does not count. The fastest run counts, because other programs
    only add to a time.
    """
    for run in kernels.values():
        run()  # makes memory and code ready
    seconds: dict[Algorithm, float] = {}
    counted, spent, left = 0, 0.0, list(kernels)
    for _ in range(MOST):
        for algorithm in left:
            took = time_run(kernels[algorithm])
            spent += took.seconds
            if not took.disturbed:
                counted += algorithm == Algorithm.TORCH
                seconds[algorithm] = min(seconds.get(algorithm, math.inf), took.seconds)
        limit = HOPELESS * min(seconds.values(), default=math.inf)
        left = [each for each in kernels if each == Algorithm.TORCH or seconds.get(each, 0.0) <= limit]
        if left == [Algorithm.TORCH] or (counted >= ROUNDS and spent >= ENOUGH) or spent >= LONG:
            break
    return seconds if counted else {}


def choose(everybody: Sequence[Mapping[int, KernelTimes]]) -> list[ChosenKernel]:
    """Return the kernels for which another algorithm than TORCH is clearly faster.

    Args:
        everybody: the times that each rank has measured of its layers. The times of the slowest rank count, because the
            others wait for it; so all ranks choose alike.
    """
    chosen: list[ChosenKernel] = []
    for layer in sorted({layer for times in everybody for layer in times}):
        of_ranks = [times[layer] for times in everybody if layer in times]
        roles = set.intersection(*(set(times) for times in of_ranks))
        found = [best for role in sorted(roles) if (best := _best(layer, role, [times[role] for times in of_ranks]))]
        if sum(each.by_torch - each.seconds for each in found) >= CALL:
            chosen += found
    return chosen


def _best(layer: int, role: KernelRole, of_ranks: Sequence[Mapping[Algorithm, float]]) -> ChosenKernel | None:
    common = set.intersection(*(set(times) for times in of_ranks))
    if Algorithm.TORCH not in common:
        return None
    slowest = {algorithm: max(times[algorithm] for times in of_ranks) for algorithm in sorted(common)}
    best = min(slowest, key=lambda algorithm: slowest[algorithm])
    by_torch = slowest[Algorithm.TORCH]
    return ChosenKernel(layer, role, best, slowest[best], by_torch) if slowest[best] < MARGIN * by_torch else None


def use(net: Net, chosen: Sequence[tuple[int, KernelRole, Algorithm]]) -> None:
    """Let the layers of ``net`` that this rank runs compute by these algorithms, all others by TORCH."""
    for node in net.graph.nodes:
        if LAYERS[node.type].chooses_kernels and net.part.runs(node.index):
            own = {role: algorithm for layer, role, algorithm in chosen if layer == node.index}
            net.layer(node).algorithms = own or BY_TORCH


def described(graph: LayerGraph, chosen: Sequence[ChosenKernel], disturbed: int = 0) -> str:
    """Return the choice in a line for the log.

    Args:
        disturbed: the number of kernels without times, because other programs took the cores.
    """
    if not chosen:
        unknown = f"; {disturbed} could not be measured, since other programs took the cores" if disturbed else ""
        return f"TORCH for all kernels, since no other is clearly faster{unknown}"
    return ", ".join(
        f"{graph.nodes[each.layer].name} {each.role.in_words} {each.algorithm.name} "
        f"({each.seconds * 1e3:.3g} ms, TORCH {each.by_torch * 1e3:.3g} ms)"
        for each in chosen
    )


def num_disturbed(times: Mapping[int, KernelTimes]) -> int:
    """Return the number of kernels without times, because other programs took the cores."""
    return sum(not by_algorithm for of_layer in times.values() for by_algorithm in of_layer.values())


def algorithm_lines(graph: LayerGraph, chosen: Sequence[ChosenKernel], disturbed: int = 0) -> Iterator[str]:
    """Yield a table of the kernels that run by another algorithm than TORCH, and how much faster they are.

    Args:
        disturbed: as in ``described``.
    """
    if not chosen:
        yield f"Algorithms: {described(graph, chosen, disturbed)}."
        return
    rows = [("layer", "kernel", "algorithm", "ms", "TORCH ms", "faster by")]
    for each in chosen:
        name, saved = graph.nodes[each.layer].name, 1 - each.seconds / each.by_torch
        times = f"{each.seconds * 1e3:.3f}", f"{each.by_torch * 1e3:.3f}", f"{saved:.0%}"
        rows.append((name, each.role.in_words, each.algorithm.name, *times))
    yield "Algorithms other than TORCH, and their times in the trials:"
    yield from columns(rows, 3)
