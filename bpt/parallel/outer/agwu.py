"""AGWU, asynchronous global weight update (BPT-CNN, section 3.3.2, strategy 2, Algorithm 3.2).

The weights of a worker change the global weights as soon as it submits. ``update_factors.py`` has the factors of Eq. 9
and Eq. 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.global_versions import Versions
from bpt.parallel.outer.idpa import Idpa
from bpt.parallel.outer.outer_instructions import Instruction, Merge, SubmissionReport
from bpt.parallel.outer.update_factors import Normalizer


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
    ) -> None:
        super().__init__(idpa, passes, local_epochs, together, migrate)
        self._by_samples = by_samples
        self.versions = Versions(idpa.nodes, max_staleness, normalizer)
        for worker in range(idpa.nodes):
            self.versions.leave(worker)  # until it has samples
        self._waiting: list[SubmissionReport] = []

    def _exchange(self, report: SubmissionReport) -> list[Instruction]:
        self._waiting.append(report)
        return self._release()

    def _release(self) -> list[Instruction]:
        """Serve all that may submit, in the order of their arrival."""
        instructions: list[Instruction] = []
        while ready := next((report for report in self._waiting if self.versions.may_submit(report.worker)), None):
            self._waiting.remove(ready)
            instructions += self._serve(ready)
        return instructions

    def _serve(self, report: SubmissionReport) -> list[Instruction]:
        worker = report.worker
        if not report.samples:  # earlier iterations ran past the end of this pass
            self._divide(worker)
            return [self._send(worker, self.versions.fetch(worker))]
        share = self.table.share(worker) if self._by_samples else 1.0
        merge = Merge(self.versions.submit(worker, report.accuracy, share=share))
        self._divide(worker)
        return [merge, self._send(worker, self.versions.newest)]

    def _without(self, lost: Sequence[int]) -> list[Instruction]:
        self._waiting = [report for report in self._waiting if report.worker not in lost]
        for worker in lost:
            if worker in self.versions.workers:
                self.versions.leave(worker)
        return self._release()

    def _joins(self, worker: int) -> int:
        return self.versions.join(worker)

    def _leaves(self, worker: int) -> None:
        self.versions.retire(worker)
