"""The objectives of placements: the time of a step, or the paper's profit; both within the devices' limits."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bpt.parallel.pipeline.placement.loads import Loads, excess
from bpt.parallel.pipeline.placement.partition_crossings import Floats, Ints


class Relaxation:
    """Lower bounds of STEP_TIME for partial placements.

    Say device j, of speed ``s_j``, computes for ``f_j`` seconds already, messages travel to it for ``r_j``, and ``x_j``
    of the ``rest`` of the work goes there. Without the messages of the rest, a step takes ``φ S`` for what is placed
    and at least the least of ``(1 - φ) L + φ Σ x_j / s_j``, subject to ``f_j + x_j / s_j ≤ L``, ``r_j ≤ L`` and ``Σ x_j
    = rest``. Of this linear program's dual, ``max λ rest + Σ y_j f_j + Σ z_j r_j`` with ``Σ y_j + Σ z_j = 1 - φ``,
    ``y_j ≥ max(0, λ s_j - φ)`` and ``z_j ≥ 0``, every feasible point is a bound. For each λ the best is ``y_j = max(0,
    λ s_j - φ)``, and the rest of ``1 - φ`` for the greatest f or r. That is concave in λ, with breaks at ``λ = φ /
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
        """Return (K,): the lower bound on the cost of all completions of partial placements.

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


UNFIT = 1e100  # scores from here on are those of placements that no device must be given


class Objective(Protocol):
    """Scores chromosomes, (K, n) at a time; lower scores are better."""

    loads: Loads

    def cost(self, genes: Ints) -> Floats:
        """Return (K,): the value to minimise."""

    def guide(self, genes: Ints) -> tuple[Floats, Floats]:
        """Return (K,) twice: the costs, and what local search follows, which counts all devices."""

    def fitness_of(self, cost: Floats) -> Floats:
        """Return (K,): positive and greater for better ones, as a roulette wheel and a convergence plot need."""

    def overload(self, genes: Ints) -> Floats:
        """Return (K, m): by how much each device's limits are exceeded; 0 if not."""

    def device_to_relieve(self, genes: Ints) -> Ints:
        """Return (K,): the device to relieve first."""


class StepTime:
    """STEP_TIME: the seconds of a step, ``T = (1 - φ) max_j max(t_j, r_j) + φ Σ_j (t_j + r_j)``.

    The time ``t_j`` of a device is the work of its partitions over its speed; messages travel while it computes.
    ``r_j`` is how long they travel to it: a blob goes once to each device that reads it, and its diff, where one is
    wanted, comes back. The sum ``S`` is thus what a step takes if nothing overlaps: all work over the speeds of the
    devices that it is on, and each crossing once. ``φ`` is ``Problem.filling``: 1 / M with M micro-batches, 1 under
    SEQUENTIAL, 0 under DELAYED. Memory is the limit.

    Where it comes from: take a device for each run of layers, which receives from the one before. A device, and as
    well a link, is a place that a micro-batch passes, in ``f_j / M`` forward. The first one is through after ``Σ f_j /
    M``, and each of the M - 1 others leaves the slowest place ``max f_j / M`` after the one before, and is never held
    up again behind it: ``Σ f_j / M + (M - 1) max f_j / M``. Under GPIPE all run backward then, which takes as much
    with ``b_j``. If the same place is the slowest in both directions, the sum is ``S / M + (1 - 1 / M) max (f_j +
    b_j) = T``, exactly. ONE_F_ONE_B does the same work in another order, and takes about as long. Where a device
    receives from several others, on links of their own, ``r_j`` counts them as one.

    Capacities that are given (``Device.capacity``) are limits as well (Eq. 6).
    """

    def __init__(self, loads: Loads) -> None:
        self.loads = loads
        self.filling = loads.problem.filling

    def cost(self, genes: Ints) -> Floats:
        """Return T."""
        return self._costs(genes)[0]

    def guide(self, genes: Ints) -> tuple[Floats, Floats]:
        """Return T, and T plus a hundredth of S / m, so that less traffic is better in any case."""
        cost, through = self._costs(genes)
        return cost, cost + through / (100 * self.loads.m)

    def _costs(self, genes: Ints) -> tuple[Floats, Floats]:
        """Return T and S, (K,) each."""
        working, received = self.loads.working(genes), self.loads.received(genes)
        through: Floats = working.sum(1) + received.sum(1)
        cost: Floats = (1 - self.filling) * np.maximum(working, received).max(1) + self.filling * through
        return cost, through

    def fitness_of(self, cost: Floats) -> Floats:
        """Return 1 / time; no work counts as the shortest possible time."""
        found: Floats = 1.0 / np.maximum(cost, np.finfo(np.float64).tiny)
        return found

    def overload(self, genes: Ints) -> Floats:
        """Return the excess of memory and of work beyond capacity, each relative to the whole net's need."""
        found = _memory_overload(self.loads, genes)
        if self.loads.has_capacities:
            found = found + self.loads.excess_work(genes) / self.loads.work.sum()
        return found

    def device_to_relieve(self, genes: Ints) -> Ints:
        """Return the device that lacks most, else the one that is slowest to compute or to receive."""
        return _largest_or(self.overload(genes), np.maximum(self.loads.working(genes), self.loads.received(genes)))

    def bound(self) -> float:
        """Return a lower bound on the time of all completions."""
        loads = self.loads
        none = np.zeros((1, loads.m))
        spread = float(Relaxation(loads).bound(none, none, np.zeros(1), float(loads.work.sum()), none == 0)[0])
        alone = ((1 - self.filling) * loads.work.max() + self.filling * loads.work.sum()) / loads.speeds.max()
        return max(spread, float(alone))


class Profit:
    """PROFIT: Eq. 5 of the Hybrid paper, ``z = Σ_i Σ_j x_ij c_ij`` with ``c_ij = p_i / d_j`` (Eq. 3), as printed.

    The load ``p_i`` of a partition is its share of the net's work, forward and backward, so that ``Σ p_i = 1``. The
    capacity ``d_j`` of a device is in the same unit: the share of the net's work that it does in ``T`` seconds,
    ``d_j = speed_j · T / work``. The paper says nothing of units, and of speeds alone (``Σ d_j = 1``) Eq. 6 could only
    be met by placements without any idle time, of which there are none in general. ``T`` is therefore the time that
    the slowest device of a reference placement computes: Eq. 6 then says that no device works longer than that, and
    there is always a placement that meets it, namely this one.

    A capacity that is given (``Device.capacity``) is ``d_j`` as it stands, in place of this.

    Maximising ``z`` fills the weakest devices first, for they have the smallest ``d_j`` (Eq. 5 knows neither time nor
    communication). Memory is a limit besides Eq. 6; Eq. 7 and 8 hold because a chromosome names one device for each
    partition.

    Args:
        reference: (n,) the placement whose slowest device's time is ``T``.

    Attributes:
        p: (n,) the loads.
        d: (m,) the capacities.
    """

    def __init__(self, loads: Loads, reference: Ints) -> None:
        self.loads = loads
        work = float(loads.work.sum()) or 1.0
        self.p = loads.work / work
        slowest = max(float(loads.working(reference[None]).max()), np.finfo(np.float64).tiny)
        given = (loads.capacity < np.inf) & (loads.capacity > 0)
        self.d = np.where(given, loads.capacity, loads.speeds * slowest) / work

    def profit(self, genes: Ints) -> Floats:
        """Return (K,): z of Eq. 5, which is f of Eq. 9."""
        z: Floats = (self.filled(genes) / self.d).sum(1)
        return z

    def cost(self, genes: Ints) -> Floats:
        """Return the negative profit."""
        return -self.profit(genes)

    def guide(self, genes: Ints) -> tuple[Floats, Floats]:
        """Return the cost, twice."""
        cost = self.cost(genes)
        return cost, cost

    def fitness_of(self, cost: Floats) -> Floats:
        """Return the profit."""
        return -cost

    def filled(self, genes: Ints) -> Floats:
        """Return (K, m): the left side of Eq. 6."""
        return self.loads.sums(self.p, genes)

    def overload(self, genes: Ints) -> Floats:
        """Return the load beyond capacity, and the memory beyond the device's relative to the whole net's need."""
        found: Floats = excess(self.filled(genes), self.d) + _memory_overload(self.loads, genes)
        return found

    def device_to_relieve(self, genes: Ints) -> Ints:
        """Return the device that lacks most, else the strongest: that with most capacity left to others."""
        return _largest_or(self.overload(genes), np.where(self.loads.one_hot(genes).any(1), self.d, 0.0))


def score(objective: Objective, genes: Ints) -> Floats:
    """Return (K,): the cost of feasible placements; infeasible ones score above UNFIT."""
    lacks = _overloads(objective, genes)
    found: Floats = np.where(lacks > 0, UNFIT * (1 + lacks), objective.cost(genes))
    return found


def guided_score(
    objective: Objective, genes: Ints, scores: Floats | float = UNFIT, guides: Floats | float = UNFIT
) -> tuple[Floats, Floats]:
    """Return ``score``, and the score with the guide of local search in place of the cost.

    Args:
        scores, guides: what each is to beat, (K,) or one for all. Limits take longer to reckon than costs: those that
            beat neither are not asked for theirs, and get UNFIT; nor are those that exceed one asked for their cost.
    """
    lost = np.broadcast_to(guides, len(genes)) >= UNFIT  # whatever is within the limits is better
    lacks = np.zeros(len(genes))
    if lost.any():
        lacks[lost] = _overloads(objective, genes[lost])
        fit = lacks == 0
        cost, guide = np.full((2, len(genes)), UNFIT)
        cost[fit], guide[fit] = objective.guide(genes[fit])
    else:
        cost, guide = objective.guide(genes)
    promising = ~lost & ((cost < scores) | (guide < guides))
    lacks[promising] = _overloads(objective, genes[promising])
    unfit = (lacks > 0) | ~(lost | promising)
    return np.where(unfit, UNFIT * (1 + lacks), cost), np.where(unfit, UNFIT * (1 + lacks), guide)


def _overloads(objective: Objective, genes: Ints) -> Floats:
    """Return (K,): above 0 where a limit is exceeded or a device has no partition."""
    found: Floats = objective.overload(genes).sum(1) + objective.loads.idle(genes)
    return found


def _memory_overload(loads: Loads, genes: Ints) -> Floats:
    if loads.always_fits:
        return np.zeros((len(genes), loads.m))
    held = loads.memory_of(genes)
    found: Floats = excess(held, loads.memory) / np.maximum(held.sum(1, keepdims=True), 1.0)
    return found


def _largest_or(lack: Floats, otherwise: Floats) -> Ints:
    found: Ints = np.where(lack.any(1), lack.argmax(1), otherwise.argmax(1))
    return found
