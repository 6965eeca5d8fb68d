"""What is left of a net costs at least so much, if it could be cut as one likes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpt.placement.loads import Floats, Loads


class Relaxation:
    """Lower bounds of STEP_TIME for partial placements.

    Say device j, of speed ``s_j``, computes for ``f_j`` seconds already, messages travel to it for ``r_j``, and ``x_j``
    of the ``rest`` of the work goes there. Without the messages of the rest, a step takes ``φ S`` for what is placed
    and at least the least of ``(1 - φ) L + φ Σ x_j / s_j``, subject to ``f_j + x_j / s_j ≤ L``, ``r_j ≤ L`` and ``Σ x_j
    = rest``. Of this linear program's dual, ``max λ rest + Σ y_j f_j + Σ z_j r_j`` with ``Σ y_j + Σ z_j = 1 - φ``,
    ``y_j ≥ max(0, λ s_j - φ)`` and ``z_j ≥ 0``, every feasible point is a bound. For each λ the best is ``y_j = max(0,
    λ s_j - φ)``, and what is left of ``1 - φ`` for the greatest f or r. That is concave in λ, with breaks at ``λ = φ /
    s_j``, so the greatest over these and the last feasible λ is the optimum.

    (For φ = 0: the busiest device so far, or all devices until they end together.)
    """

    def __init__(self, loads: Loads) -> None:
        self.speeds, self.filling = loads.speeds, loads.problem.filling
        self.lightest = float(loads.work.min())
        full = 1 - self.filling
        fastest = np.sort(self.speeds)[::-1]
        last = ((full + self.filling * np.arange(1, loads.m + 1)) / fastest.cumsum()).min()
        self.prices = np.unique(np.minimum(np.append(self.filling / self.speeds, last), last))  # λ
        self.shares = np.maximum(self.prices[:, None] * self.speeds - self.filling, 0.0)  # y, one row for each λ
        self.left = np.maximum(full - self.shares.sum(1), 0.0)

    def bound(self, filled: Floats, received: Floats, through: Floats, rest: float, empty: NDArray[np.bool_]) -> Floats:
        """(K,): the cost at least of anything that becomes of partial placements.

        Args:
            filled: (K, m) seconds that each device computes so far.
            received: (K, m) seconds in which messages travel to it so far.
            through: (K,) S so far.
            rest: the work that is not placed.
            empty: (K, m) whether a device has no partition yet: it gets the lightest one at least.
        """
        least = empty * (self.lightest / self.speeds)
        filled = filled + least
        left = np.maximum(rest - self.lightest * empty.sum(1), 0.0)
        most = np.maximum(filled, received).max(1)
        costs = left[:, None] * self.prices + filled @ self.shares.T + most[:, None] * self.left
        found: Floats = self.filling * (through + least.sum(1)) + costs.max(1)
        return found
