"""Repair: chromosomes that leave a device without partitions, or give one more than it can take."""

from __future__ import annotations

import numpy as np

from bpt.placement.loads import ROUNDING, Floats, Ints
from bpt.placement.objective import Objective, Profit


def limits(objective: Objective) -> tuple[Floats, Floats]:
    """What a partition takes of each of L limits, (n, L), and what the devices have, (m, L).

    Memory, at least, without what other devices send; and under PROFIT the capacities of Eq. 6.
    """
    loads = objective.loads
    takes = [loads.parameters + loads.least_alive * loads.activations]
    has = [loads.memory - np.where(np.arange(loads.m) == 0, loads.source_memory, 0.0)]
    if isinstance(objective, Profit):
        takes.append(objective.p)
        has.append(objective.d)
    return np.array(takes).T, np.array(has).T


def fill(children: Ints, m: int, rng: np.random.Generator) -> None:
    """Give each device without a partition one of a device that has several. ``children``: (K, n), changed."""
    counts = np.stack([(children == device).sum(1) for device in range(m)], 1)
    for row, device in np.argwhere(counts == 0).tolist():
        spare = np.flatnonzero(counts[row, children[row]] > 1)
        gene = int(rng.choice(spare))
        counts[row, children[row, gene]] -= 1
        children[row, gene] = device
        counts[row, device] += 1


def relieve(objective: Objective, child: Ints, rng: np.random.Generator) -> None:
    """Move partitions at random from devices that have too much to devices that have room, as far as there are any.

    Args:
        child: (n,), changed; each device has a partition, and keeps one.
    """
    takes, has = limits(objective)
    has = has * (1 + ROUNDING)
    used = np.zeros_like(has)
    np.add.at(used, child, takes)
    for device in np.flatnonzero((used > has).any(1)).tolist():
        mine = rng.permutation(np.flatnonzero(child == device))
        for gene in mine[:-1].tolist():
            if (used[device] <= has[device]).all():
                break
            room = np.flatnonzero((used + takes[gene] <= has).all(1))
            room = room[room != device]
            if len(room):
                goal = int(room[rng.integers(len(room))])
                used[device] -= takes[gene]
                used[goal] += takes[gene]
                child[gene] = goal
