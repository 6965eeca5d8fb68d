"""A worker of the outer layer that reports made-up seconds: as if it computed at a pace that changes."""

from __future__ import annotations

from dataclasses import replace

from bpt.parallel.outer.outer_instructions import Order, SubmissionReport
from bpt.train.outer.worker import Worker

PACE, SLOW, AFTER = 0.01, 0.04, 2
"""Seconds of a sample; those of worker 1 from the end of pass AFTER on."""


class PacedWorker(Worker):
    """Worker 1 becomes four times slower after two passes; all else is as it is."""

    def _train(self, order: Order, waited: float) -> SubmissionReport:
        report = super()._train(order, waited)
        pace = SLOW if self._number == 1 and order.passes >= AFTER else PACE
        return replace(report, seconds=report.samples * pace, waited=0.0)
