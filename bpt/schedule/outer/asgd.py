"""ASGD: workers send gradients, which are applied as they come; the asynchronous SGD that BPT-CNN compares itself with.

As in Downpour SGD of Dean et al., *Large scale distributed deep networks* (DistBelief), with its two periods.
"""

from __future__ import annotations

from fractions import Fraction

from bpt.balance.idpa import Idpa
from bpt.schedule.outer.agwu import Agwu
from bpt.schedule.outer.instructions import Descend, Instruction
from bpt.schedule.outer.messages import Report


class Asgd(Agwu):
    """Each worker pushes the sum of its gradients every ``push`` iterations, and at the end of a pass, and takes the
    newest weights at the first push after ``fetch`` iterations. Meanwhile it goes on with its own updates.

    Args:
        push, fetch: iterations.

    See OuterSchedule and Versions for the other arguments.
    """

    def __init__(self, idpa: Idpa, passes: Fraction, push: int = 1, fetch: int = 1, max_staleness: int = 0) -> None:
        super().__init__(idpa, passes, max_staleness=max_staleness)
        self._period = push
        self._fetch = fetch
        self._unfetched = [0] * idpa.nodes  # iterations since each has taken the weights
        self._before = Fraction(0)

    def submitted(self, report: Report) -> list[Instruction]:
        self._before = self.progress
        return super().submitted(report)

    def _exchange(self, report: Report) -> list[Instruction]:
        if report.iterations:
            return super()._exchange(report)
        # An iteration of the pass before has trained this one to its end: there is no gradient.
        if self._needs_batch(report.passes):
            self._hand_out()
        return [self._send(report.worker, self.versions.newest, weights=False)]

    def _serve(self, report: Report) -> list[Instruction]:
        worker = report.worker
        self._unfetched[worker] += report.iterations
        fetches = self._unfetched[worker] >= self._fetch
        if fetches:
            self._unfetched[worker] = 0
        update = self.versions.submit(worker, fetches=fetches)
        if self._needs_batch(self.nodes[worker].passes):
            self._hand_out()
        return [Descend(update, self._before), self._send(worker, self.versions.newest, fetches)]
