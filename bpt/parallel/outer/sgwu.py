"""SGWU, synchronous global weight update (BPT-CNN, section 3.3.2, strategy 1, Eq. 7).

All workers submit their weights, then all get the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bpt.config.plan.run_plan import ParallelSpec
from bpt.parallel.outer.base import DEFAULTS, OuterSchedule
from bpt.parallel.outer.idpa import Idpa
from bpt.parallel.outer.outer_instructions import AverageSubmitted, OuterInstruction, SubmissionReport
from bpt.parallel.outer.update_factors import sgwu_factors
from bpt.parallel.outer.worker_table import WorkerState


class Sgwu(OuterSchedule):
    """Synchronous global weight update: early workers wait for the others (Eq. 7).

    Args:
        by_samples: whether the weights of a worker count by its samples, too, not only by its accuracy as in Eq. 7.

    See OuterSchedule for the other arguments.
    """

    def __init__(
        self,
        idpa: Idpa,
        passes: Fraction,
        local_epochs: int = 1,
        by_samples: bool = False,
        migrate: bool = False,
        settings: ParallelSpec = DEFAULTS,
    ) -> None:
        super().__init__(idpa, passes, local_epochs, migrate=migrate, settings=settings)
        self._by_samples = by_samples
        self._version = 0
        self._reports: dict[int, SubmissionReport] = {}

    def hands_out(self, worker: int) -> bool:
        others = self.table.count(WorkerState.TRAINING) - (self.nodes[worker].state is WorkerState.TRAINING)
        return not others and super().hands_out(worker)

    def _exchange(self, report: SubmissionReport) -> list[OuterInstruction]:
        self._reports[report.worker] = report
        return self._complete()

    def _complete(self) -> list[OuterInstruction]:
        """Return the instructions for the new version, once all have submitted."""
        if self.table.count(WorkerState.TRAINING) or not self._reports:
            return []
        workers = tuple(sorted(self._reports))
        trained = tuple(worker for worker in workers if self._reports[worker].samples)
        averages: list[OuterInstruction] = []
        if trained:  # workers that have trained nothing since their last order have nothing to add
            samples = [self.nodes[worker].samples for worker in trained] if self._by_samples else []
            factors = sgwu_factors([self._reports[worker].accuracy for worker in trained], samples)
            self._version += 1
            averages.append(AverageSubmitted(trained, factors, self._version, self._steps.next()))
        self._reports.clear()
        self._divide(*workers)
        sends = [self._send(worker, self._version) for worker in workers]
        return [*averages, *sends]

    def _without(self, lost: Sequence[int]) -> list[OuterInstruction]:
        for worker in lost:
            self._reports.pop(worker, None)
        return self._complete()

    def _joins(self, worker: int) -> int:
        return self._version

    def _leaves(self, worker: int) -> None:
        pass
