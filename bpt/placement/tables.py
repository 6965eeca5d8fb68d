"""Dynamic programs over the devices: the best way to cut the first partitions for the first devices."""

from __future__ import annotations

import numpy as np

from bpt.placement.loads import Floats


def worst_table(costs: list[Floats]) -> list[Floats]:
    """``table[j][b]``: the least worst cost of partitions ``[0, b)`` on devices ``0 .. j``."""
    table = [costs[0][0]]
    for cost in costs[1:]:
        table.append(np.maximum(table[-1][:, None], cost).min(0))
    return table


def sum_table(costs: list[Floats]) -> list[Floats]:
    """``table[j][b]``: the least sum of the costs of the first ``j`` devices, if the next one begins at border ``b``.

    Args:
        costs: of each device, from any of its borders (rows) to any of the next one's (columns).
    """
    table = [np.zeros(len(costs[0]))]
    for cost in costs:
        table.append((table[-1][:, None] + cost).min(0))
    return table
