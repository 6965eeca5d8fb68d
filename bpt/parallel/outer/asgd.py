"""ASGD, asynchronous SGD with which BPT-CNN compares itself (DistBelief).

Workers send gradients, which the server applies as they come.
"""

from __future__ import annotations

from fractions import Fraction

from bpt.config.plan.run_plan import ParallelSpec
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.base import DEFAULTS
from bpt.parallel.outer.idpa import Idpa
from bpt.parallel.outer.outer_instructions import ApplyGradient, OuterInstruction, SubmissionReport


class Asgd(Agwu):
    """Asynchronous SGD: each worker pushes the sum of its gradients every ``push`` iterations and after each pass.

    It takes the newest weights at the first push after ``fetch`` iterations. Meanwhile it continues with its own
    updates.

    Args:
        push, fetch: iterations.

    The other arguments are those of OuterSchedule and Versions.
    """

    def __init__(
        self,
        idpa: Idpa,
        passes: Fraction,
        push: int = 1,
        fetch: int = 1,
        max_staleness: int = 0,
        together: bool = False,
        migrate: bool = False,
        settings: ParallelSpec = DEFAULTS,
    ) -> None:
        super().__init__(
            idpa, passes, max_staleness=max_staleness, by_samples=True, together=together, migrate=migrate,
            settings=settings,
        )  # fmt: skip
        self._period = push
        self._fetch = fetch
        self._unfetched = [0] * idpa.nodes  # iterations since each has taken the weights
        self._before = Fraction(0)

    def submitted(self, report: SubmissionReport) -> list[OuterInstruction]:
        self._before = self.progress
        return super().submitted(report)

    def _exchange(self, report: SubmissionReport) -> list[OuterInstruction]:
        if report.iterations:
            return super()._exchange(report)
        # An iteration of the pass before has trained this one to its end: there is no gradient.
        self._divide(report.worker)
        return [self._send(report.worker, self.versions.newest, weights=False)]

    def _serve(self, report: SubmissionReport) -> list[OuterInstruction]:
        worker = report.worker
        self._unfetched[worker] += report.iterations
        fetches = self._unfetched[worker] >= self._fetch
        if fetches:
            self._unfetched[worker] = 0
        staleness = self.versions.staleness(worker)
        if self._staleness.discards(staleness):
            self._unfetched[worker] = 0
            return self._discard(worker)
        update = self.versions.submit(worker, fetches=fetches, damping=self._staleness.damping(staleness))
        correction = self._staleness.correction(worker, self._share, report.iterations)
        self._divide(worker)
        return [ApplyGradient(update, self._before, correction), self._send(worker, self.versions.newest, fetches)]

    @staticmethod
    def _fresh(workers: int) -> int:
        return 1
