"""Tester: tests a run's test nets and logs their scores, in Caffe's lines (Caffe: ``Solver::Test``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bpt.base.log import number
from bpt.config.plan.run_plan import RunPlan
from bpt.train.runtime.built_nets import Built
from bpt.train.runtime.testing import ScoresOfTest, run_test
from bpt.train.solver.display import output_lines

LOG = logging.getLogger("bpt")


@dataclass(frozen=True)
class Tester:
    """Tests one net at a time.

    Attributes:
        plan: the run.
        nets: the test nets.
        stop: asked before each batch; if it answers True the test ends without a result.
    """

    plan: RunPlan
    nets: Sequence[Built]
    stop: Callable[[], bool]

    def test(self, index: int, iteration: int, averaged: bool) -> ScoresOfTest | None:
        """Test a net after so many iterations of training; return ``None`` if it was stopped.

        Args:
            averaged: the nets have the average of the weights now, which the log says.
        """
        LOG.info("Iteration %d, Testing %s (#%d)", iteration, "average of weights" if averaged else "net", index)
        _, operator, outputs = self.nets[index]
        batches, debug = self.plan.test_iter[index], self.plan.debug_info
        scores = run_test(
            operator, batches, self.stop, None, debug, outputs, iteration=iteration, ap_version=self.plan.ap_version
        )
        if scores is None:
            LOG.info("Test interrupted.")
            return None
        if self.plan.test_compute_loss:
            LOG.info("%s loss: %s", "Average" if averaged else "Test", number(scores.loss))
        for precisions in scores.precisions.values() if self.plan.show_per_class_result else ():
            for label, precision in precisions.by_label.items():
                LOG.info("class%d: %s", label, number(precision))
        for line in output_lines(operator.net.graph, scores.outputs, "Average" if averaged else "Test"):
            LOG.info("%s", line)
        return scores
