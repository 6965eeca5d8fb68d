"""Local search: chromosomes get better by small changes, many chromosomes at once.

Repair: chromosomes that leave a device without partitions, or give one more than it can take.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from bpt.parallel.pipeline.placement.loads import ROUNDING, Loads
from bpt.parallel.pipeline.placement.objective import Objective, Profit, guided_score
from bpt.parallel.pipeline.placement.partition_crossings import Floats, Ints


def limits(objective: Objective) -> tuple[Floats, Floats]:
    """Return what a partition uses of each of L limits, (n, L), and what the devices have, (m, L).

    Memory, at least, without what other devices send; and the capacities of Eq. 6: under PROFIT, or if they are given.
    """
    loads = objective.loads
    takes = [loads.parameters + loads.run_again(loads.least_alive) * loads.activations]
    has = [loads.memory - np.where(np.arange(loads.m) == 0, loads.source_memory, 0.0)]
    if isinstance(objective, Profit):
        takes.append(objective.p)
        has.append(objective.d)
    elif loads.has_capacities:
        takes.append(loads.work)
        has.append(loads.capacity)
    return np.array(takes).T, np.array(has).T


def fill(children: Ints, m: int, rng: np.random.Generator) -> None:
    """Give each device without a partition one of a device that has several; change ``children`` (K, n) in place."""
    counts = np.stack([(children == device).sum(1) for device in range(m)], 1)
    for row, device in np.argwhere(counts == 0).tolist():
        spare = np.flatnonzero(counts[row, children[row]] > 1)
        gene = int(rng.choice(spare))
        counts[row, children[row, gene]] -= 1
        children[row, gene] = device
        counts[row, device] += 1


def relieve(objective: Objective, children: Ints, rows: Ints, rng: np.random.Generator) -> None:
    """Move random partitions from overloaded devices to devices with room, as far as there is any.

    Args:
        children: (K, n), of which ``rows`` are changed; each device has a partition, and keeps one.
    """
    takes, has = limits(objective)
    for row in rows.tolist():
        _relieve(children[row], takes, has * (1 + ROUNDING), rng)


def _relieve(child: Ints, takes: Floats, has: Floats, rng: np.random.Generator) -> None:
    used = np.zeros_like(has)
    np.add.at(used, child, takes)
    for device in np.flatnonzero((used > has).any(1)).tolist():
        mine = rng.permutation(np.flatnonzero(child == device))[:-1]
        while (used[device] > has[device]).any():
            fits: NDArray[np.bool_] = np.all(used + takes[mine, None] <= has, axis=2)
            fits[:, device] = False
            if not fits.any():
                break
            place = int(fits.any(1).argmax())
            gene, room = mine[place], np.flatnonzero(fits[place])
            goal = int(room[rng.integers(len(room))])
            used[device] -= takes[gene]
            used[goal] += takes[gene]
            child[gene] = goal
            mine = mine[place + 1 :]  # for those before there is no room, nor will there be


ALL = 512  # a neighbourhood of no more is searched completely
SOME = 64  # otherwise the number of those drawn from it


def improved(
    objective: Objective, genes: Ints, rng: np.random.Generator, rounds: int, idle_rounds: int = 3
) -> tuple[Ints, Floats]:
    """Improve each chromosome until no better change is found, or for a number of rounds.

    A round compares each chromosome with others that differ from it a little, and continues with the best of them: a
    run of partitions goes to one device, or two partitions change places. Where there are few partitions, these are
    all there are; otherwise 64 are drawn at random, most of which relieve the device that needs it most.

    Args:
        genes: (K, n); not changed.
        idle_rounds: a chromosome is done after this number of rounds in a row without a better one.

    Returns:
        The best chromosomes that were met, (K, n), and their scores (K,).
    """
    genes = genes.copy()
    n, m = genes.shape[1], objective.loads.m
    scores, guides = guided_score(objective, genes)
    best = genes.copy()
    if n < 2 or m < 2:
        return best, scores
    complete = _neighbourhood(n, m) if is_small(objective.loads) else None
    idle = np.zeros(len(genes), dtype=np.int64)
    for _ in range(rounds):
        rows = np.flatnonzero(idle < (1 if complete else idle_rounds))
        if not len(rows):
            break
        changed = complete.of(genes[rows]) if complete else _drawn(objective, genes[rows], rng)
        beat = np.repeat(np.stack([scores[rows], guides[rows]]), changed.shape[1], 1)
        found, guided = guided_score(objective, changed.reshape(-1, n), *beat)
        found, guided = found.reshape(len(rows), -1), guided.reshape(len(rows), -1)
        each = np.arange(len(rows))
        least = found.argmin(1)
        better = found[each, least] < scores[rows]
        best[rows[better]] = changed[each, least][better]
        scores[rows[better]] = found[each, least][better]
        step = guided.argmin(1)
        goes = guided[each, step] < guides[rows]
        genes[rows[goes]] = changed[each, step][goes]
        guides[rows[goes]] = guided[each, step][goes]
        idle[rows] = np.where(goes, 0, idle[rows] + 1)
    return best, scores


def is_small(loads: Loads) -> bool:
    """Return whether local search tries all possible changes."""
    n = loads.n
    return n * (n + 1) // 2 * loads.m + n * (n - 1) // 2 <= ALL


class _Neighbourhood:
    """All chromosomes that differ from one in a run on one device, or in two swapped genes."""

    def __init__(self, n: int, m: int) -> None:
        runs = np.array([[a <= i < b for i in range(n)] for a, b in combinations(range(n + 1), 2)])
        self._inside = np.repeat(runs, m, 0)
        self._device = np.tile(np.arange(m), len(runs))[:, None]
        swaps = []
        for i, j in combinations(range(n), 2):
            order = np.arange(n)
            order[[i, j]] = j, i
            swaps.append(order)
        self._swaps = np.array(swaps)

    def of(self, genes: Ints) -> Ints:
        """Return the neighbours, (K, N, n)."""
        moved = np.where(self._inside, self._device, genes[:, None, :])
        return np.concatenate([moved, genes[:, self._swaps]], 1)


@lru_cache(16)
def _neighbourhood(n: int, m: int) -> _Neighbourhood:
    return _Neighbourhood(n, m)


def _drawn(objective: Objective, genes: Ints, rng: np.random.Generator) -> Ints:
    """Return (K, 64, n): random chromosomes that differ a little from each of ``genes``."""
    (k, n), tries = genes.shape, SOME
    m = objective.loads.m
    rows = np.arange(k * tries)
    new = np.repeat(genes, tries, 0)
    # A partition of the pressed device, each as likely; in one case of four, any partition.
    pressed = genes == objective.device_to_relieve(genes)[:, None]
    order = np.argsort(~pressed, axis=1, kind="stable")
    count = np.where(rng.random((k, tries)) < 0.75, pressed.sum(1, keepdims=True), 0)
    place = (rng.random((k, tries)) * np.where(count, count, n)).astype(np.int64)
    first = np.take_along_axis(order, place, 1).ravel()
    kind = rng.random(len(rows))
    other = np.where(kind < 0.4, rng.integers(0, n, len(rows)), first)  # swap
    target = rng.integers(0, m, len(rows))
    beside = np.clip(first + rng.choice((-1, 1), len(rows)), 0, n - 1)
    target = np.where(kind > 0.7, new[rows, beside], target)
    mine, theirs = new[rows, first], new[rows, other]
    swap = kind < 0.4
    new[rows, first] = np.where(swap, theirs, target)
    new[rows[swap], other[swap]] = mine[swap]
    runs = np.flatnonzero(kind > 0.85)
    if len(runs):
        _move_runs(new, runs, first[runs], new[runs, first[runs]], rng)
    return new.reshape(k, tries, n)


def _move_runs(new: Ints, rows: Ints, first: Ints, target: Ints, rng: np.random.Generator) -> None:
    """Move the partitions behind ``first``, in a number by a geometric law, to the same device."""
    n = new.shape[1]
    length = np.minimum(rng.geometric(0.4, len(rows)), n)
    columns = np.arange(n)
    inside = (columns >= first[:, None]) & (columns < (first + length)[:, None])
    new[rows] = np.where(inside, target[:, None], new[rows])
