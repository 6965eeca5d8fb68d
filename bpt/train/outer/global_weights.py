"""GlobalWeights: the weights on the parameter server, and their updates by SGWU and AGWU (BPT-CNN, section 3.3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.outer.outer_instructions import ApplyGradient, AverageSubmitted, Merge
from bpt.parallel.outer.outer_step import MOMENTUM_NAMES, OuterMomentum, OuterStep
from bpt.parallel.outer.staleness import Correction
from bpt.parallel.outer.update_factors import AgwuUpdate
from bpt.system.comm.base import Buffer

_ENTRY = "submission of worker "  # name of an entry of the table in a snapshot


class GlobalWeights:
    """The newest global weights, the version that each worker trains from, and the workers' submissions.

    A version is never overwritten, only replaced, so that workers with the same base share its memory. Blobs that
    passes update (a BatchNorm's statistics) are mixed with factors of at most 1, because a variance must not become
    negative.

    Outer steps and corrections by staleness treat each trained element separately, so parts of the weights can be on
    several servers.

    A submission with the factor 0 changes nothing, even if it is NaN: a diverged worker has NaN, and its Q is 0.

    Args:
        weights: version 0 as flat weights (see FlatWeights).
        trained: number of trained elements, which are at the front.

    Attributes:
        newest: the newest version as flat weights, which must not be changed.
    """

    def __init__(self, weights: Buffer, trained: int) -> None:
        self.newest = weights
        self._trained = trained
        self._bases: dict[int, Buffer] = {}
        self._submitted: dict[int, Buffer] = {}
        self._momentum = OuterMomentum()
        self._table: dict[int, Buffer] = {}  # under staleness: TABLE, the newest change or gradient of each worker

    def fetch(self, worker: int) -> Buffer:
        """Return the newest version, from which the worker continues to train."""
        self._bases[worker] = self.newest
        return self.newest

    def base_of(self, worker: int) -> Buffer:
        """Return the version from which the worker trains."""
        return self._bases[worker]

    def submit(self, worker: int, weights: Buffer | None) -> None:
        """Store a worker's submission until an instruction uses it."""
        assert weights is not None, "the submission went to parameter servers"
        self._submitted[worker] = weights

    def pop_submission(self, worker: int) -> Buffer:
        """Return and remove a worker's submission."""
        return self._submitted.pop(worker)

    def forget(self, worker: int) -> None:
        """Drop the data of a lost worker."""
        for values in (self._bases, self._submitted, self._table):
            values.pop(worker, None)

    def merge(self, instruction: Merge) -> None:
        """Apply Eq. 10: W^(i) = W^(i-1) + γ Q (W_j - W^(k)), or the outer step by this change."""
        update = instruction.update
        local, base = self.pop_submission(update.worker), self._bases[update.worker]
        if not update.factor:
            return
        if update.replaces and base is self.newest and instruction.step is None and not instruction.correction.table:
            self.newest = local
            return
        merged = self._corrected(local - base, update, instruction.correction, update.factor, -1.0)
        self._step(instruction.step, merged)
        merged += self.newest
        share = min(1.0, update.factor)
        rest = slice(self._trained, None)
        # Elements that no worker changes must keep their bits.
        merged[rest] = self.newest[rest] + share * (local[rest] - self.newest[rest])
        self.newest = merged

    def gradient(self, instruction: ApplyGradient) -> Buffer:
        """Return the gradient to apply: the worker's submission, corrected by its staleness."""
        gradient = self.pop_submission(instruction.update.worker)
        return self._corrected(gradient, instruction.update, instruction.correction, 1.0, 1.0)

    def _corrected(
        self, values: Buffer, update: AgwuUpdate, correction: Correction, factor: float, sign: float
    ) -> Buffer:
        """Return ``factor`` · ``values``, corrected; overwrites ``values``.

        Args:
            factor: of the values alone.
            sign: 1 if the values are a gradient, -1 if they are a change of the weights, opposite to a gradient.
        """
        own = values[: self._trained]
        if correction.compensation:
            missed = self.newest[: self._trained] - self._bases[update.worker][: self._trained]
            own += sign * correction.compensation * own * own * missed
        if not correction.table:
            values *= factor
            return values
        self._table[update.worker] = (factor / update.share) * own
        # A worker whose Q was 0 may have no entry.
        own[:] = sum(weight * self._table[each] for each, weight in correction.table if each in self._table)
        return values

    def _step(self, step: OuterStep | None, change: Buffer) -> None:
        """Replace the trained elements of a version's change by those of an outer step."""
        if step is not None:
            change[: self._trained] = self._momentum.step(step, change[: self._trained])

    def memory(self) -> Mapping[str, Buffer]:
        """Return what continues in a resumed run besides the weights: outer momentum and table, by name."""
        return self._momentum.state() | {f"{_ENTRY}{worker}": values for worker, values in self._table.items()}

    def remember(self, memory: Mapping[str, Buffer]) -> None:
        """Continue from a ``memory``."""
        self._momentum.load(memory)
        self._table = {worker: memory[f"{_ENTRY}{worker}"] for worker in workers_of(memory)}

    def reports(self) -> tuple[()]:
        """Return no reports: there are no separate parameter servers."""
        return ()

    def finish(self, head: Buffer) -> None:
        """Do nothing at the end of the run: there are no separate parameter servers."""

    def average(self, instruction: AverageSubmitted) -> None:
        """Apply Eq. 7: W^(i) = Σ_j W_j Q_j / Σ Q, or the outer step towards it."""
        parts = [self.pop_submission(worker) for worker in instruction.workers]
        terms = [(part, factor) for part, factor in zip(parts, instruction.factors, strict=True) if factor]
        (mean, first), *others = terms
        rest = slice(self._trained, None)
        untrained = mean[rest].copy()
        for part, factor in others:
            untrained += factor * (part[rest] - mean[rest])
        if first != 1.0:
            mean *= first
        for part, factor in others:
            part *= factor
            mean += part
        if instruction.step is not None:
            mean -= self.newest
            self._step(instruction.step, mean)
            mean += self.newest
        mean[rest] = untrained
        self.newest = mean


def names_used(param: ParallelSpec, workers: int) -> list[str]:
    """Return the names in a memory that a run with these settings can use."""
    used = list(MOMENTUM_NAMES) if param.outer_param.name else []
    if param.agwu_param.staleness == pb.AgwuParameter.TABLE:
        used += [f"{_ENTRY}{worker}" for worker in range(workers)]
    return used


def workers_of(memory: Iterable[str]) -> tuple[int, ...]:
    """Return the workers whose submissions are in the memory of GlobalWeights with these names."""
    return tuple(int(name.removeprefix(_ENTRY)) for name in memory if name.startswith(_ENTRY))
