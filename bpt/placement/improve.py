"""Local search: chromosomes get better by small changes, many chromosomes at once."""

from __future__ import annotations

import numpy as np

from bpt.placement.loads import Floats, Ints
from bpt.placement.objective import Objective, score


def improved(
    objective: Objective, genes: Ints, rng: np.random.Generator, rounds: int, tries: int
) -> tuple[Ints, Floats]:
    """Change each chromosome for the better until no change is found, or for so many rounds.

    In each round a chromosome is compared with ``tries`` that differ from it a little, and becomes the best of them.
    Changes are drawn: a partition, mostly of the device that must be relieved, goes to any device or to that of a
    neighbour; two partitions change places; a run of partitions goes to the device of one of its neighbours.

    Args:
        genes: (K, n); not changed.

    Returns:
        The chromosomes (K, n), and their scores (K,).
    """
    genes = genes.copy()
    scores = score(objective, genes)
    n, m = genes.shape[1], objective.loads.m
    if n < 2 or m < 2:
        return genes, scores
    patience = np.zeros(len(genes), dtype=np.int64)
    for _ in range(rounds):
        active = np.flatnonzero(patience < 3)
        if not len(active):
            break
        changed = _changed(objective, genes[active], rng, tries)
        found = score(objective, changed).reshape(len(active), tries)
        best = found.argmin(1)
        least = found[np.arange(len(active)), best]
        better = least < scores[active]
        chosen = changed.reshape(len(active), tries, n)[np.arange(len(active)), best]
        genes[active[better]] = chosen[better]
        scores[active[better]] = least[better]
        patience[active] = np.where(better, 0, patience[active] + 1)
    return genes, scores


def _changed(objective: Objective, genes: Ints, rng: np.random.Generator, tries: int) -> Ints:
    """(K · tries, n): chromosomes that differ a little from each of ``genes``."""
    k, n = genes.shape
    m = objective.loads.m
    rows = np.arange(k * tries)
    new = np.repeat(genes, tries, 0)
    pressed = np.repeat(objective.pressed(genes), tries)
    # A partition of the pressed device, each as likely; in one case of four, any partition.
    wanted = (new == pressed[:, None]) & (rng.random((len(rows), 1)) < 0.75)
    first = (rng.random(new.shape) + wanted).argmax(1)
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
    return new


def _move_runs(new: Ints, rows: Ints, first: Ints, target: Ints, rng: np.random.Generator) -> None:
    """Partitions behind ``first``, as many as a geometric law gives, go to the same device."""
    n = new.shape[1]
    length = np.minimum(rng.geometric(0.4, len(rows)), n)
    columns = np.arange(n)
    inside = (columns >= first[:, None]) & (columns < (first + length)[:, None])
    new[rows] = np.where(inside, target[:, None], new[rows])
