"""Beyond the paper: the cut into unequal chunks that the cost model predicts to be the fastest.

Of the 2^(l-1) ways to cut l layers (Proposition 4.1 of CGDP, whose count leaves out the net as one chunk), the paper's
search sees few: those of chunks of one size. Here a prediction chooses among all.

The time is ``serial_backward_time``: by Eq. 1, where all copies run at once, cuts look alike that are not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpt.schedule.chunks import chunks
from bpt.schedule.cost_model import Costs, serial_backward_time

Cut = tuple[int, ...]
PATIENCE = 16  # numbers of chunks that are looked at without any gain
ROUNDING = 1e-12  # relative; times that differ by less are equal


def propose(costs: Costs) -> Cut:
    """The cut with the least ``serial_backward_time``; of equal ones, the one with fewer chunks.

    Never predicted to be slower than any size of the paper's rule. The least of all cuts is found by dynamic
    programming over the number of layers that are done and the number of chunks they make; of the cuts that share
    both, the one is kept whose queues are done first. As there are several queues, this may be the wrong one, but
    rarely is: of random nets with up to nine layers, one in 500 got more than the least time of all cuts, by 4 % at
    most.
    """
    return candidates(costs, 1)[0]


def candidates(costs: Costs, count: int) -> list[Cut]:
    """The proposal, then other cuts that may turn out faster than predicted; at most ``count``, no two alike.

    These are the best one of equal chunks (the paper's rule, section 4.2), the best with half as many chunks as the
    proposal and with twice as many (synchronisation may take more or less than what was measured), with one less and
    one more, and then what else the paper's rule gives, in the order of predicted time.
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


def _uniform(costs: Costs) -> list[tuple[Cut, float]]:
    """The different cuts of the paper's rule and their predicted times, the fastest first, then the fewest chunks."""
    cuts = dict.fromkeys(chunks(len(costs.layers), size) for size in range(1, len(costs.layers) + 2))
    times = ((cut, serial_backward_time(costs, cut)) for cut in cuts)
    return sorted(times, key=lambda item: (item[1], len(item[0])))


class _Table:
    """Row n, column i: the best cut of the first i layers (from the top) into n chunks. Rows are made when needed.

    A cut is as good as the times at which the queues have done its chunks; the last queue's counts, and the sum of all
    where that is equal.
    """

    def __init__(self, costs: Costs) -> None:
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
        """The cut with the least time, of equal ones the one with the fewest chunks; and its time."""
        best = 1
        while len(self._times) < min(best + PATIENCE, self._layers):
            floor = self._computed[-1] + self._per_chunk * (len(self._times) + 1) + self._tail
            if self._times and floor >= self._times[best - 1]:
                break  # more chunks can only be worse
            self._add_row()
            if self._times[-1] < self._times[best - 1] * (1 - ROUNDING):
                best = len(self._times)
        return self.cut(best), self._times[best - 1]

    def cut(self, number: int) -> Cut:
        """The best cut of all layers into ``number`` chunks."""
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
