"""SGWU: all workers submit, then all get the mean of their weights (BPT-CNN, section 3.3.2 (1))."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bpt.balance.idpa import Idpa
from bpt.schedule.outer.base import OuterSchedule, State
from bpt.schedule.outer.instructions import Average, Instruction
from bpt.schedule.outer.messages import Report
from bpt.schedule.weight_update import sgwu_factors


class Sgwu(OuterSchedule):
    """Synchronous global weight update: a worker that is early waits for the others (Eq. 7).

    See OuterSchedule for the arguments.
    """

    def __init__(self, idpa: Idpa, passes: Fraction, local_epochs: int = 1) -> None:
        super().__init__(idpa, passes, local_epochs)
        self._version = 0
        self._reports: dict[int, Report] = {}

    def hands_out(self, worker: int) -> bool:
        others = self._counts[State.TRAINING] - (self.nodes[worker].state is State.TRAINING)
        return not others and super().hands_out(worker)

    def _exchange(self, report: Report) -> list[Instruction]:
        self._reports[report.worker] = report
        return self._complete()

    def _complete(self) -> list[Instruction]:
        """The new version, once all have submitted."""
        if self._counts[State.TRAINING] or not self._reports:
            return []
        workers = tuple(sorted(self._reports))
        factors = sgwu_factors([self._reports[worker].accuracy for worker in workers])
        self._reports.clear()
        self._version += 1
        if self._needs_batch(max(self.nodes[worker].passes for worker in workers)):
            self._hand_out()
        sends = [self._send(worker, self._version) for worker in workers]
        return [Average(workers, factors, self._version), *sends]

    def _without(self, gone: Sequence[int]) -> list[Instruction]:
        for worker in gone:
            self._reports.pop(worker, None)
        return self._complete()

    def _joins(self, worker: int) -> int:
        return self._version

    def _leaves(self, worker: int) -> None:
        pass
