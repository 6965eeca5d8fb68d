"""Repair: chromosomes that leave a device without partitions, or give one more than it can take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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


def relieve(objective: Objective, children: Ints, rows: Ints, rng: np.random.Generator) -> None:
    """Move partitions at random from devices that have too much to devices that have room, as far as there are any.

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
