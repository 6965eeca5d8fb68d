"""EXACT: the best placement of partitions on devices there is, by branch and bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import PrototxtError
from bpt.parallel.pipeline.placement.loads import ROUNDING, Loads
from bpt.parallel.pipeline.placement.objective import Objective, Profit, Relaxation, score
from bpt.parallel.pipeline.placement.partition_crossings import Floats, Ints

CHUNK = 4096  # partial placements that are extended at once
MOST = 20_000_000  # partial placements that are looked at before the case counts as too big


def best_placement(objective: Objective, start: Ints) -> Ints:
    """Return the placement with the least cost within the limits, with at least one partition on each device.

    Partitions are placed one after the other, the heaviest first, on every device. A partial placement is dropped if
    it exceeds a limit, leaves too few partitions for the empty devices, or if not even its bound is better than the
    best placement so far. The bound of a time: no device gets less than it has, and the rest takes at least what
    it would, cut as one likes (``Relaxation``). The bound of a profit: the rest brings at most what it would, cut
    as one likes, in the room of the weakest devices.

    Args:
        start: (n,) a good placement to begin with; need not be within the limits.

    Returns:
        (n,); ``start`` if there is none within the limits.

    Raises:
        PrototxtError: the case is too big.
    """
    return _Search(objective, start).run()


@dataclass
class _Partial:
    """A set of partial placements of the same partitions.

    ``genes`` (K, n), -1 where nothing is placed; ``filled`` (K, m): seconds of work, or shares under PROFIT;
    ``received`` (K, m): seconds of messages; ``total`` (K,): what a step takes if nothing overlaps, or the profit;
    ``held`` (K, m): bytes at least; ``bound`` (K,): of the cost.
    """

    depth: int
    genes: Ints
    filled: Floats
    received: Floats
    total: Floats
    held: Floats
    bound: Floats

    def take(self, rows: Ints) -> _Partial:
        return _Partial(
            self.depth,
            self.genes[rows],
            self.filled[rows],
            self.received[rows],
            self.total[rows],
            self.held[rows],
            self.bound[rows],
        )


class _Search:
    def __init__(self, objective: Objective, start: Ints) -> None:
        self.objective = objective
        self.loads = objective.loads
        self.profit = objective if isinstance(objective, Profit) else None
        self.order = np.argsort(-self.loads.work, kind="stable")
        self.rest = np.concatenate([self.loads.work[self.order][::-1].cumsum()[::-1], [0.0]])
        self.best = start
        self.least = float(score(objective, start[None])[0])
        self.relaxation = Relaxation(self.loads)
        self.alive = self.loads.run_again(self.loads.least_alive)
        self.twins = _twins(self.loads)
        self.seen = 0

    def run(self) -> Ints:
        m = self.loads.m
        held = np.zeros((1, m))
        held[0, 0] = self.loads.source_memory
        none = np.full((1, self.loads.n), -1, dtype=np.int64)
        stack = [_Partial(0, none, np.zeros((1, m)), np.zeros((1, m)), np.zeros(1), held, np.full(1, -np.inf))]
        while stack:
            partial = stack.pop()
            partial = partial.take(np.flatnonzero(self._promising(partial.bound)))
            if not len(partial.genes):
                continue
            longer = self._extended(partial)
            if longer.depth == self.loads.n:
                self._finish(longer.genes)
                continue
            order = np.argsort(-longer.bound, kind="stable")  # the most promising ones end on top
            for begin in range(0, len(order), CHUNK):
                stack.append(longer.take(order[begin : begin + CHUNK]))
        return self.best

    def _promising(self, bound: Floats) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = bound < self.least - abs(self.least) * ROUNDING
        return found

    def _finish(self, genes: Ints) -> None:
        if len(genes):
            scores = score(self.objective, genes)
            row = int(scores.argmin())
            if self._promising(scores)[row]:
                self.best, self.least = genes[row], float(scores[row])

    def _extended(self, partial: _Partial) -> _Partial:
        """Place the next partition on each device in turn; drop what cannot be best."""
        loads, m = self.loads, self.loads.m
        k, i = len(partial.genes), int(self.order[partial.depth])
        self.seen += k * m
        if self.seen > MOST:
            raise PrototxtError(
                f"allocator: EXACT is for small cases, and {loads.n} partitions on {m} devices are too many; use "
                "allocator: GABRA, or set pipeline_param { partitions } to a smaller number"
            )
        longer = partial.take(np.repeat(np.arange(k), m))
        longer.depth += 1
        device = np.tile(np.arange(m), k)
        rows = np.arange(k * m)
        used = _used(longer.genes, m)
        if self.profit:
            longer.filled[rows, device] += self.profit.p[i]
            longer.total += self.profit.p[i] / self.profit.d[device]
            kept = longer.filled[rows, device] <= self.profit.d[device] * (1 + ROUNDING)
        else:
            seconds = loads.work[i] / loads.speeds[device]
            longer.filled[rows, device] += seconds
            longer.total += seconds
            self._communicate(longer, i, device)
            kept = longer.filled[rows, device] * loads.speeds[device] <= loads.capacity[device] * (1 + ROUNDING)
        longer.genes[rows, i] = device
        longer.held[rows, device] += loads.parameters[i] + self.alive * loads.activations[i]
        kept &= longer.held[rows, device] <= loads.memory[device] * (1 + ROUNDING)
        for twin, before in self.twins:  # of two devices that are alike the first one is used first
            kept &= ~((device == twin) & ~used[:, before])
        used[rows, device] = True
        kept &= (~used).sum(1) <= loads.n - longer.depth
        longer.bound = self._bound(longer, ~used)
        kept &= self._promising(longer.bound)
        return longer.take(np.flatnonzero(kept))

    def _bound(self, partial: _Partial, empty: NDArray[np.bool_]) -> Floats:
        rest = self.rest[partial.depth]
        if self.profit:
            left = rest / (self.loads.work.sum() or 1.0)
            weakest = np.argsort(self.profit.d, kind="stable")
            d = self.profit.d[weakest] * (1 + ROUNDING)
            room = np.maximum(d - partial.filled[:, weakest], 0.0)
            taken = np.clip(left - (room.cumsum(1) - room), 0.0, room)
            gain: Floats = -(partial.total + (taken / self.profit.d[weakest]).sum(1))
            return gain
        return self.relaxation.bound(partial.filled, partial.received, partial.total, float(rest), empty)

    def _communicate(self, partial: _Partial, i: int, device: Ints) -> None:
        """Add the traffic between partition ``i``, now on ``device`` (K,), and the placed partitions."""
        loads, m = self.loads, self.loads.m
        rows = np.arange(len(device))
        for crossing, (producer, readers) in enumerate(
            zip(loads.crossings.producers.tolist(), loads.crossings.readers, strict=True)
        ):
            seconds = loads.crossings.seconds[crossing]
            if producer == i:
                reads = _used(partial.genes[:, list(readers)], m)
                reads[rows, device] = False
                partial.received += seconds * reads
                partial.total += seconds * reads.sum(1)
            elif i in readers:
                maker = np.zeros_like(device) if producer < 0 else partial.genes[:, producer]
                there = _used(partial.genes[:, list(readers)], m)[rows, device]
                sent = np.flatnonzero((maker >= 0) & (maker != device) & ~there)
                partial.received[sent, device[sent]] += seconds
                partial.total[sent] += seconds


def _used(genes: Ints, m: int) -> NDArray[np.bool_]:
    """Return (K, m): whether any of the placed partitions is on a device."""
    used = np.zeros((len(genes), m + 1), dtype=np.bool_)
    used[np.arange(len(genes))[:, None], genes] = True  # what is not placed falls into the last column
    return used[:, :m]


def _twins(loads: Loads) -> list[tuple[int, int]]:
    """Return pairs of equal devices: each device with the last one like it before."""
    first = 1 if (loads.crossings.producers < 0).any() or loads.source_memory else 0  # stage 0 has what others have not
    found = []
    for device in range(first + 1, loads.m):
        for before in reversed(range(first, device)):
            if all(of[before] == of[device] for of in (loads.speeds, loads.memory, loads.capacity)):
                found.append((device, before))
                break
    return found
