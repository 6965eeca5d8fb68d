"""The strategies SGWU, AGWU and ASGD: when workers' weights change the global ones (BPT-CNN, section 3.3.2).

SGWU (1): all workers submit, then all get the mean of their weights. AGWU (2, Alg. 3.2): a worker's weights change the
global ones as soon as it submits. ASGD: workers send gradients, which are applied as they come; the asynchronous SGD
that BPT-CNN compares itself with.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.global_versions import Versions
from bpt.parallel.outer.idpa import Idpa
from bpt.parallel.outer.outer_instructions import ApplyGradient, AverageSubmitted, Instruction, Merge, SubmissionReport
from bpt.parallel.outer.weight_update import Normalizer, sgwu_factors
from bpt.parallel.outer.worker_table import WorkerState


class Sgwu(OuterSchedule):
    """Synchronous global weight update: early workers wait for the others (Eq. 7).

    Args:
        by_samples: whether the weights of a worker count by its samples, too, not only by its accuracy as in Eq. 7.

    See OuterSchedule for the other arguments.
    """

    def __init__(self, idpa: Idpa, passes: Fraction, local_epochs: int = 1, by_samples: bool = False) -> None:
        super().__init__(idpa, passes, local_epochs)
        self._by_samples = by_samples
        self._version = 0
        self._reports: dict[int, SubmissionReport] = {}

    def hands_out(self, worker: int) -> bool:
        others = self.table.count(WorkerState.TRAINING) - (self.nodes[worker].state is WorkerState.TRAINING)
        return not others and super().hands_out(worker)

    def _exchange(self, report: SubmissionReport) -> list[Instruction]:
        self._reports[report.worker] = report
        return self._complete()

    def _complete(self) -> list[Instruction]:
        """Return the instructions for the new version, once all have submitted."""
        if self.table.count(WorkerState.TRAINING) or not self._reports:
            return []
        workers = tuple(sorted(self._reports))
        trained = tuple(worker for worker in workers if self._reports[worker].samples)
        averages: list[Instruction] = []
        if trained:  # workers that have trained nothing since their last order have nothing to add
            samples = [self.nodes[worker].samples for worker in trained] if self._by_samples else []
            factors = sgwu_factors([self._reports[worker].accuracy for worker in trained], samples)
            self._version += 1
            averages.append(AverageSubmitted(trained, factors, self._version))
        self._reports.clear()
        if self._needs_batch(max(self.nodes[worker].passes for worker in workers)):
            self._hand_out()
        sends = [self._send(worker, self._version) for worker in workers]
        return [*averages, *sends]

    def _without(self, lost: Sequence[int]) -> list[Instruction]:
        for worker in lost:
            self._reports.pop(worker, None)
        return self._complete()

    def _joins(self, worker: int) -> int:
        return self._version

    def _leaves(self, worker: int) -> None:
        pass


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
    ) -> None:
        super().__init__(idpa, passes, local_epochs, together)
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
        if not report.samples:  # its batches had reached over this pass already: there is nothing new
            if self._needs_batch(self.nodes[worker].passes):
                self._hand_out()
            return [self._send(worker, self.versions.fetch(worker))]
        share = self.table.share(worker) if self._by_samples else 1.0
        merge = Merge(self.versions.submit(worker, report.accuracy, share=share))
        if self._needs_batch(self.nodes[worker].passes):
            self._hand_out()
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
    ) -> None:
        super().__init__(idpa, passes, max_staleness=max_staleness, together=together)
        self._period = push
        self._fetch = fetch
        self._unfetched = [0] * idpa.nodes  # iterations since each has taken the weights
        self._before = Fraction(0)

    def submitted(self, report: SubmissionReport) -> list[Instruction]:
        self._before = self.progress
        return super().submitted(report)

    def _exchange(self, report: SubmissionReport) -> list[Instruction]:
        if report.iterations:
            return super()._exchange(report)
        # An iteration of the pass before has trained this one to its end: there is no gradient.
        if self._needs_batch(report.passes):
            self._hand_out()
        return [self._send(report.worker, self.versions.newest, weights=False)]

    def _serve(self, report: SubmissionReport) -> list[Instruction]:
        worker = report.worker
        self._unfetched[worker] += report.iterations
        fetches = self._unfetched[worker] >= self._fetch
        if fetches:
            self._unfetched[worker] = 0
        update = self.versions.submit(worker, fetches=fetches)
        if self._needs_batch(self.nodes[worker].passes):
            self._hand_out()
        return [ApplyGradient(update, self._before), self._send(worker, self.versions.newest, fetches)]
