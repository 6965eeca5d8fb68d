"""The cost model: the time of backward and exchange, predicted from measured times (CGDP, section 3.2).

All ranks are taken to be alike, as in the paper, so that one stands for all. Only the backward phase counts: forward
and update do not change. Times are seconds.

The paper's names: t_bp is a layer's backward, t_as the synchronisation of the default stream with the D2H stream,
t_aa the copy to the host and the accumulation there, t_bc the way back. T is the time of the backward phase until all
gradients are back, T_BP that of the computing alone, and T_O = T - T_BP; T' and T'_O are those of OrigDP, which
exchanges after backward.

Beyond the paper: the cut into unequal chunks that is predicted to be the fastest. Of the 2^(l-1) ways to cut l layers
(Proposition 4.1 of CGDP, whose count leaves out the net as one chunk), the paper's search sees few: those of chunks of
one size. Here a prediction chooses among all. The time is ``serial_backward_time``: by Eq. 1, where all copies run at
once, cuts look alike that are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bpt.parallel.cgdp.chunks import chunks


@dataclass(frozen=True)
class TrainedLayerCost:
    """The times of a layer with trained parameters, or of a chunk of such layers.

    Attributes:
        name: of the layer; of a chunk, those of its first and last layer.
        elements: of its trained parameters.
        bp: t_bp, the backward of the layer and of the layers without trained parameters above it.
        d2h: copy of its gradients to the host.
        accumulate: sum of all ranks' gradients on the host.
        bc: t_bc, copy of the global gradients from the host.
        reduce: beyond the paper, sum over hosts; 0 on one host.
    """

    name: str
    elements: int
    bp: float
    d2h: float
    accumulate: float
    bc: float
    reduce: float = 0.0

    def __post_init__(self) -> None:
        assert self.elements >= 0 and all(0 <= time < math.inf for time in (self.bp, *self.stages)), self

    @property
    def stages(self) -> tuple[float, float, float, float]:
        """The times of the exchange in their order: D2H copy, accumulation, reduction between hosts, H2D copy."""
        return self.d2h, self.accumulate, self.reduce, self.bc

    @property
    def aa(self) -> float:
        """t_aa: the seconds from the start of the copy to the host until all gradients are accumulated."""
        return self.d2h + self.accumulate + self.reduce


@dataclass(frozen=True)
class ChunkCosts:
    """The times of the layers of a net, and the additional time of each chunk.

    The paper gives every layer a t_as of its own (section 3.2), and every chunk (4.1). Here it is
    ``per_chunk + per_element * elements``: where the copies are made by the cores that compute (on a CPU), they hold up
    the default stream for as long as they last.

    Attributes:
        layers: those with trained parameters, from the top one (layer l) down to layer 1.
        per_chunk: the part of t_as that does not depend on the chunk.
        per_element: the part of t_as for each element of its parameters.
    """

    layers: tuple[TrainedLayerCost, ...]
    per_chunk: float = 0.0
    per_element: float = 0.0

    def __post_init__(self) -> None:
        assert self.per_chunk >= 0 and self.per_element >= 0, self

    def as_(self, elements: int) -> float:
        """Return t_as of a chunk with so many elements."""
        return self.per_chunk + self.per_element * elements

    def chunked(self, lengths: Sequence[int]) -> Iterator[TrainedLayerCost]:
        """Yield the chunks of a cut, from the top down; a chunk has the sums of its layers (section 4.1)."""
        assert sum(lengths) == len(self.layers) and all(length >= 1 for length in lengths), lengths
        start = 0
        for length in lengths:
            group = self.layers[start : start + length]
            start += length
            yield group[0] if length == 1 else _together(group)

    def scaled(self, backward: float = 1.0, synchronisation: float = 1.0, exchange: float = 1.0) -> ChunkCosts:
        """Return the costs where computing, t_as, or the exchange take this many times as long."""
        layers = (
            replace(
                layer,
                bp=layer.bp * backward,
                d2h=layer.d2h * exchange,
                accumulate=layer.accumulate * exchange,
                bc=layer.bc * exchange,
                reduce=layer.reduce * exchange,
            )
            for layer in self.layers
        )
        return ChunkCosts(tuple(layers), self.per_chunk * synchronisation, self.per_element * synchronisation)


def _together(layers: Sequence[TrainedLayerCost]) -> TrainedLayerCost:
    """Return the layers as one chunk."""
    return TrainedLayerCost(
        name=f"{layers[0].name}..{layers[-1].name}",
        elements=sum([layer.elements for layer in layers]),
        bp=math.fsum([layer.bp for layer in layers]),
        d2h=math.fsum([layer.d2h for layer in layers]),
        accumulate=math.fsum([layer.accumulate for layer in layers]),
        bc=math.fsum([layer.bc for layer in layers]),
        reduce=math.fsum([layer.reduce for layer in layers]),
    )


def total_times(costs: ChunkCosts, lengths: Sequence[int]) -> list[float]:
    """Return T_BP^i of each chunk (Eq. 1): from the start of backward until its sums are back on the device.

    Transfers and accumulations of different chunks do not hinder each other here.
    """
    times = []
    computed = 0.0
    for chunk in costs.chunked(lengths):
        computed += chunk.bp + costs.as_(chunk.elements)
        times.append(computed + chunk.aa + chunk.bc)
    return times


def backward_time(costs: ChunkCosts, lengths: Sequence[int]) -> float:
    """Return T, the largest T_BP^i (Eq. 1)."""
    return max(total_times(costs, lengths), default=0.0)


def serial_backward_time(costs: ChunkCosts, lengths: Sequence[int]) -> float:
    """Return T if the chunks queue up for each resource, first come first served.

    One copy a direction, one accumulation and one reduction run at a time. T is never less than Eq. 1.

    Eq. 1 lets all copies run at once, though "only one transfer in one direction is allowed at a time" (section 3.1).
    """
    computed = 0.0
    free = [0.0, 0.0, 0.0, 0.0]  # when each stage has done the chunks so far
    for chunk in costs.chunked(lengths):
        computed += chunk.bp + costs.as_(chunk.elements)
        ready = computed
        for stage, seconds in enumerate(chunk.stages):
            ready = free[stage] = max(ready, free[stage]) + seconds
    return free[-1]


def computing_time(costs: ChunkCosts) -> float:
    """Return T_BP, the sum of t_bp, which is the time of backward alone."""
    return math.fsum(layer.bp for layer in costs.layers)


def synchronisation_time(costs: ChunkCosts, lengths: Sequence[int]) -> float:
    """Return the sum of t_as over the chunks (section 4.1)."""
    return math.fsum(costs.as_(chunk.elements) for chunk in costs.chunked(lengths))


def final_overhead(costs: ChunkCosts, lengths: Sequence[int]) -> float:
    """Return T_O (Eq. 2) if only the last chunk's exchange is exposed: the sum of t_as, and its t_aa and t_bc.

    Never more than the ``overhead`` of Eq. 1, and the same wherever the last chunk's gradients are the last ones back.
    """
    *_, last = costs.chunked(lengths)
    return synchronisation_time(costs, lengths) + last.aa + last.bc


def original_overhead(costs: ChunkCosts) -> float:
    """Return T'_O, the overhead of OrigDP: the sum of t_aa + t_bc over all layers (section 3.2)."""
    return math.fsum(layer.aa + layer.bc for layer in costs.layers)


def original_backward_time(costs: ChunkCosts) -> float:
    """Return T' of OrigDP, which exchanges after backward, on one stream, without synchronisation (section 3.2)."""
    return computing_time(costs) + original_overhead(costs)


Predict = Callable[[ChunkCosts, Sequence[int]], float]


def overhead(costs: ChunkCosts, lengths: Sequence[int], predict: Predict = backward_time) -> float:
    """Return T_O = T - T_BP, with T of Eq. 1 or of another prediction (section 3.2)."""
    return predict(costs, lengths) - computing_time(costs)


Cut = tuple[int, ...]
MOST_WITHOUT_GAIN = 16  # numbers of chunks that are tried without any gain, before the last is taken
ROUNDING = 1e-12  # relative; times that differ by less are equal


def candidates(costs: ChunkCosts, count: int) -> list[Cut]:
    """Return the proposal, then other cuts that may be faster than predicted; at most ``count``, all different.

    The proposal is the cut with the least ``serial_backward_time``; of equal ones, the one with fewer chunks. Never
    predicted to be slower than any size of the paper's rule. The least of all cuts is found by dynamic programming
    over the layers that are done and the number of chunks they make; of the cuts that share both, the one is kept
    whose queues are done first. As there are several queues, this may be the wrong one, but rarely is: of random
    nets with up to nine layers, one in 500 got more than the least time of all cuts, by 4 % at most.

    The others are the best one of equal chunks (the paper's rule, section 4.2), the best with half as many chunks
    as the proposal and with twice as many (synchronisation may take more or less than what was measured), with one
    less and one more, and then what else the paper's rule gives, in the order of predicted time.
    """
    assert count >= 1, count
    if not costs.layers:
        return [()]
    table = _Table(costs)
    uniform = _uniform(costs)
    best, time = table.best()
    if uniform[0][1] < time * (1 - ROUNDING):
        best = uniform[0][0]
    number = len(best)
    found = dict.fromkeys([best, uniform[0][0]])
    for other in (number // 2, number * 2, number - 1, number + 1):
        if len(found) < count and 1 <= other <= len(costs.layers):
            found[table.cut(other)] = None
    found |= dict.fromkeys(cut for cut, _ in uniform)
    return list(found)[:count]


def _uniform(costs: ChunkCosts) -> list[tuple[Cut, float]]:
    """Return the different cuts of the paper's rule with predicted times: fastest first, then fewest chunks."""
    cuts = dict.fromkeys(chunks(len(costs.layers), size) for size in range(1, len(costs.layers) + 2))
    times = ((cut, serial_backward_time(costs, cut)) for cut in cuts)
    return sorted(times, key=lambda item: (item[1], len(item[0])))


class _Table:
    """A table whose row n, column i has the best cut of the first i layers (from the top) into n chunks.

    Rows are made when needed.

    A cut is as good as the times at which the queues have done its chunks; the last queue's counts, and the sum of all
    where that is equal.
    """

    def __init__(self, costs: ChunkCosts) -> None:
        self._layers = len(costs.layers)
        self._per_chunk = costs.per_chunk
        backward = [layer.bp + costs.per_element * layer.elements for layer in costs.layers]
        self._computed = np.concatenate([[0.0], np.cumsum(backward)])
        stages = np.array([layer.stages for layer in costs.layers]).T
        used = stages.any(axis=1)
        used[-1] = True
        stages = stages[used]
        self._tail = float(stages[:, -1].sum())  # exchange of the last layer: nothing can hide it
        done = np.pad(np.cumsum(stages, axis=1), ((0, 0), (1, 0)))
        # [stage, i, j]: time of a chunk of the layers from j to i; there is none unless j < i.
        self._chunk = np.where(np.tri(self._layers + 1, k=-1) > 0, done[:, :, None] - done[:, None, :], np.inf)
        self._free = np.full((len(stages), self._layers + 1), np.inf)  # the last row: when each queue is free
        self._free[:, 0] = 0.0
        self._from: list[NDArray[np.intp]] = []  # rows: where the last chunk begins
        self._times: list[float] = []  # of the best cut of all layers into 1, 2, … chunks

    def best(self) -> tuple[Cut, float]:
        """Return the cut with the least time (of equal ones that with the fewest chunks), and its time."""
        best = 1
        while len(self._times) < min(best + MOST_WITHOUT_GAIN, self._layers):
            floor = self._computed[-1] + self._per_chunk * (len(self._times) + 1) + self._tail
            if self._times and floor >= self._times[best - 1]:
                break  # more chunks can only be worse
            self._add_row()
            if self._times[-1] < self._times[best - 1] * (1 - ROUNDING):
                best = len(self._times)
        return self.cut(best), self._times[best - 1]

    def cut(self, number: int) -> Cut:
        """Return the best cut of all layers into ``number`` chunks."""
        while len(self._times) < number:
            self._add_row()
        lengths = []
        end = self._layers
        for row in reversed(self._from[:number]):
            lengths.append(end - int(row[end]))
            end = int(row[end])
        assert end == 0
        return tuple(reversed(lengths))

    def _add_row(self) -> None:
        ready = (self._computed + self._per_chunk * (len(self._times) + 1))[:, None]
        ends = np.empty_like(self._chunk)
        for stage, free in enumerate(self._free):
            ready = np.add(np.maximum(ready, free, out=ends[stage]), self._chunk[stage], out=ends[stage])
        # The sum weighs so little that it decides where the last queue's times are equal.
        start = np.argmin(ends[-1] + 1e-9 * ends.sum(axis=0), axis=1)
        self._free = np.take_along_axis(ends, start[None, :, None], axis=2)[:, :, 0]
        self._from.append(start)
        self._times.append(float(self._free[-1, -1]))
