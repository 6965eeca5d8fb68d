"""AGWU, asynchronous global weight update (BPT-CNN, section 3.3.2, strategy 2, Algorithm 3.2).

The weights of a worker change the global weights as soon as it submits. ``update_factors.py`` has the factors of Eq. 9
and Eq. 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bpt.config.plan.run_plan import ParallelSpec
from bpt.parallel.outer.base import DEFAULTS, OuterSchedule
from bpt.parallel.outer.global_versions import Versions
from bpt.parallel.outer.idpa import Idpa
from bpt.parallel.outer.outer_instructions import Discard, Merge, OuterInstruction, SubmissionReport
from bpt.parallel.outer.staleness import StalenessRule
from bpt.parallel.outer.update_factors import AgwuUpdate, Normalizer


class Agwu(OuterSchedule):
    """Asynchronous global weight update without waiting (Eq. 9 and 10), unless ``max_staleness`` bounds the lead.

    Args:
        max_staleness, normalizer: see Versions.
        by_samples: whether the change that a worker has made counts by its samples, too, not only by accuracy and age
            as in Eq. 9 and 10. Under IDPA a quick node trains on several times the samples of a slow one.

    See OuterSchedule for the other arguments.
    """

    def __init__(
        self,
        idpa: Idpa,
        passes: Fraction,
        local_epochs: int = 1,
        max_staleness: int = 0,
        normalizer: Normalizer = Normalizer.OTHERS,
        by_samples: bool = False,
        together: bool = False,
        migrate: bool = False,
        settings: ParallelSpec = DEFAULTS,
    ) -> None:
        super().__init__(idpa, passes, local_epochs, together, migrate, settings)
        self._by_samples = by_samples
        self._staleness = StalenessRule(settings.agwu_param, idpa.nodes, self._fresh(idpa.nodes))
        self.versions = Versions(idpa.nodes, max_staleness, normalizer)
        for worker in range(idpa.nodes):
            self.versions.leave(worker)  # until it has samples
        self._waiting: list[SubmissionReport] = []

    def remember(self, *workers: int) -> None:
        self._staleness.remember(*workers)

    def _exchange(self, report: SubmissionReport) -> list[OuterInstruction]:
        self._waiting.append(report)
        return self._release()

    def _release(self) -> list[OuterInstruction]:
        """Serve all that may submit, in the order of their arrival."""
        instructions: list[OuterInstruction] = []
        while ready := next((report for report in self._waiting if self.versions.may_submit(report.worker)), None):
            self._waiting.remove(ready)
            instructions += self._serve(ready)
        return instructions

    def _serve(self, report: SubmissionReport) -> list[OuterInstruction]:
        worker = report.worker
        if not report.samples:  # earlier iterations ran past the end of this pass
            self._divide(worker)
            return [self._send(worker, self.versions.fetch(worker))]
        if self._staleness.discards(self.versions.staleness(worker)):
            return self._discard(worker)
        damping = self._staleness.damping(self.versions.staleness(worker))
        update = self.versions.submit(worker, report.accuracy, share=self._share(worker), damping=damping)
        correction = self._staleness.correction(worker, self._share)
        merge = Merge(update, correction, self._steps.next(self.table.with_samples))
        self._divide(worker)
        return [merge, self._send(worker, self.versions.newest)]

    @staticmethod
    def _fresh(workers: int) -> int:
        """Return the staleness at which a change counts in full; see StalenessRule."""
        return workers - 1

    def _share(self, worker: int) -> float:
        return self.table.share(worker) if self._by_samples else 1.0

    def _discard(self, worker: int) -> list[OuterInstruction]:
        """Drop a submission; its worker continues with the newest weights."""
        dropped = AgwuUpdate(worker, self.versions.base(worker), self.versions.newest, 0.0, 0.0)
        self.versions.fetch(worker)
        self._divide(worker)
        return [Discard(dropped), self._send(worker, self.versions.newest)]

    def _without(self, lost: Sequence[int]) -> list[OuterInstruction]:
        self._waiting = [report for report in self._waiting if report.worker not in lost]
        for worker in lost:
            self._staleness.forget(worker)
            if worker in self.versions.workers:
                self.versions.leave(worker)
        return self._release()

    def _joins(self, worker: int) -> int:
        return self.versions.join(worker)

    def _leaves(self, worker: int) -> None:
        self.versions.retire(worker)
