"""Placements to begin a search with: the fastest cut, and random ones within the limits (Hybrid paper, Alg. 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpt.placement.block import fastest_cut, genes_of, least_excess
from bpt.placement.improve import improved
from bpt.placement.loads import ROUNDING, Ints, Loads
from bpt.placement.objective import UNFIT, Objective, StepTime, score
from bpt.placement.repair import limits, relieve


def good_placement(loads: Loads) -> Ints:
    """(n,): the fastest cut of the partitions; if none fits, the best that a local search finds, which may not fit."""
    cut = fastest_cut(loads)
    if cut is not None:
        return np.array(genes_of(cut, loads.n), dtype=np.int64)
    objective = StepTime(loads)
    rng = np.random.default_rng(0)
    begin = np.concatenate([[genes_of(least_excess(loads), loads.n)], spread(objective, 31, rng)])
    genes, scores = improved(objective, begin, rng, rounds=200)
    best: Ints = genes[int(scores.argmin())]
    return best


def spread(objective: Objective, count: int, rng: np.random.Generator) -> Ints:
    """Algorithm 2: (count, n) chromosomes at random, each device with one partition at least.

    Partitions are taken in random order, and go to a random one of the devices that have room for them, within Eq. 6
    under PROFIT and within their memory; where none has, to any device. Heavy ones come rather earlier. Some of the
    chromosomes may therefore exceed a limit.
    """
    loads = objective.loads
    n, m = loads.n, loads.m
    takes, room = limits(objective)
    rows = np.arange(count)
    weight = loads.work / (loads.work.max() or 1.0)
    order = np.argsort(-(weight + rng.random((count, n))), axis=1)
    genes = np.zeros((count, n), dtype=np.int64)
    left = np.repeat(room[None], count, 0)
    empty = np.ones((count, m), dtype=np.bool_)
    for place in range(n):
        mine = order[:, place]
        fits: NDArray[np.bool_] = np.all(takes[mine][:, None, :] <= left * (1 + ROUNDING), axis=2)
        fits[~fits.any(1)] = True
        must = empty.sum(1) >= n - place  # as many devices without a partition as there are partitions left
        fits[must] = empty[must]
        chosen = (rng.random((count, m)) + fits).argmax(1)
        genes[rows, mine] = chosen
        left[rows, chosen] -= takes[mine]
        empty[rows, chosen] = False
    return genes


def population(objective: Objective, size: int, seeds: Ints, rng: np.random.Generator) -> Ints:
    """(K, n), 1 ≤ K ≤ size: different chromosomes within the limits, ``seeds`` (S, n) first.

    Random ones that exceed a limit are repaired by local search, and left out where that fails; if none is left, the
    one that comes nearest is returned alone.
    """
    found = np.concatenate([seeds, spread(objective, max(size - len(seeds), 0), rng)])
    scores = score(objective, found)
    relieve(objective, found, np.flatnonzero(scores >= UNFIT), rng)
    scores = score(objective, found)
    unfit = np.flatnonzero(scores >= UNFIT)
    if len(unfit):
        found[unfit], scores[unfit] = improved(objective, found[unfit], rng, rounds=20)
    fit = found[scores < UNFIT]
    if not len(fit):
        return found[[int(scores.argmin())]]
    _, first = np.unique(fit, axis=0, return_index=True)
    return fit[np.sort(first)][:size]
