"""AGWU: a worker's weights change the global ones as soon as it submits (BPT-CNN, section 3.3.2 (2), Alg. 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bpt.balance.idpa import Idpa
from bpt.schedule.outer.base import OuterSchedule
from bpt.schedule.outer.instructions import Instruction, Merge
from bpt.schedule.outer.messages import Report
from bpt.schedule.versions import Versions
from bpt.schedule.weight_update import Normalizer


class Agwu(OuterSchedule):
    """Asynchronous global weight update: nobody waits (Eq. 9 and 10), unless ``max_staleness`` bounds how far ahead.

    Args:
        max_staleness, normalizer: see Versions.

    See OuterSchedule for the other arguments.
    """

    def __init__(
        self,
        idpa: Idpa,
        passes: Fraction,
        local_epochs: int = 1,
        max_staleness: int = 0,
        normalizer: Normalizer = Normalizer.OTHERS,
    ) -> None:
        super().__init__(idpa, passes, local_epochs)
        self.versions = Versions(idpa.nodes, max_staleness, normalizer)
        for worker in range(idpa.nodes):
            self.versions.leave(worker)  # until it has samples
        self._held: list[Report] = []

    def _exchange(self, report: Report) -> list[Instruction]:
        self._held.append(report)
        return self._release()

    def _release(self) -> list[Instruction]:
        """Serve all that may submit, in the order in which they came."""
        instructions: list[Instruction] = []
        while ready := next((report for report in self._held if self.versions.may_submit(report.worker)), None):
            self._held.remove(ready)
            instructions += self._serve(ready)
        return instructions

    def _serve(self, report: Report) -> list[Instruction]:
        worker = report.worker
        merge = Merge(self.versions.submit(worker, report.accuracy))
        if self._needs_batch(self.nodes[worker].passes):
            self._hand_out()
        return [merge, self._send(worker, self.versions.newest)]

    def _without(self, gone: Sequence[int]) -> list[Instruction]:
        self._held = [report for report in self._held if report.worker not in gone]
        for worker in gone:
            if worker in self.versions.workers:
                self.versions.leave(worker)
        return self._release()

    def _joins(self, worker: int) -> int:
        return self.versions.join(worker)

    def _leaves(self, worker: int) -> None:
        self.versions.leave(worker)
