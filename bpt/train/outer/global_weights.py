"""GlobalWeights: the weights on the parameter server, and their updates by SGWU and AGWU (BPT-CNN, section 3.3.2)."""

from __future__ import annotations

from bpt.parallel.outer.outer_instructions import AverageSubmitted, Merge
from bpt.system.comm.base import Buffer


class GlobalWeights:
    """The newest global weights, the version that each worker trains from, and the workers' submissions.

    A version is never overwritten, only replaced, so that workers with the same base share its memory. Blobs that
    passes update (a BatchNorm's statistics) are mixed with factors of at most 1, because a variance must not become
    negative.

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
        self._bases.pop(worker, None)
        self._submitted.pop(worker, None)

    def merge(self, instruction: Merge) -> None:
        """Apply Eq. 10: W^(i) = W^(i-1) + γ Q (W_j - W^(k))."""
        update = instruction.update
        local, base = self.pop_submission(update.worker), self._bases[update.worker]
        if not update.factor:
            return
        if update.replaces and base is self.newest:
            self.newest = local
            return
        merged = local - base
        merged *= update.factor
        merged += self.newest
        share = min(1.0, update.factor)
        rest = slice(self._trained, None)
        # Elements that no worker changes must keep their bits.
        merged[rest] = self.newest[rest] + share * (local[rest] - self.newest[rest])
        self.newest = merged

    def reports(self) -> tuple[()]:
        """Return no reports: there are no separate parameter servers."""
        return ()

    def finish(self, head: Buffer) -> None:
        """Do nothing at the end of the run: there are no separate parameter servers."""

    def average(self, instruction: AverageSubmitted) -> None:
        """Apply Eq. 7: W^(i) = Σ_j W_j Q_j / Σ Q."""
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
        mean[rest] = untrained
        self.newest = mean
