"""Tester: tests a run's test nets, logs their scores, and judges them (Caffe: ``Solver::TestAll``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bpt.base.log import number
from bpt.base.signals import SignalAction
from bpt.config.plan.run_plan import RunPlan
from bpt.system.events.event import Activity
from bpt.train.rules.test_output_rules import higher_is_better
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.testing import ScoresOfTest, run_test
from bpt.train.solver.display import output_lines
from bpt.train.solver.milestones import Listener, Tested
from bpt.train.state.best import after_test

LOG = logging.getLogger("bpt")


@dataclass
class Requests:
    """The pending requests to a run.

    Attributes:
        stop: whether training must end.
        snapshot: whether to write a snapshot as soon as the nets have the weights, and not their average.
    """

    stop: bool = False
    snapshot: bool = False


class Tester:
    """Tests the test nets of a run.

    Args:
        requests: pending requests: a stop ends a test early, and tests without progress request a stop.
        snapshot: function that writes a snapshot with a name.
        notify: function to call with a milestone for each test.
    """

    def __init__(
        self,
        plan: RunPlan,
        runtime: Runtime,
        requests: Requests,
        snapshot: Callable[[str], object],
        notify: Listener,
    ) -> None:
        self._plan = plan
        self._runtime = runtime
        self._requests = requests
        self._snapshot = snapshot
        self._notify = notify
        self._averaged = False  # whether the nets have the average of the weights

    def test_all(self) -> None:
        """Test every test net and log its scores, then again with the average of the weights, if there is one."""
        runtime, requests = self._runtime, self._requests
        with runtime.testing():
            scores = self._test_each()
            if runtime.has_average and not requests.stop:
                with runtime.averaged(), self._without_snapshots():
                    scores = self._test_each()
                if requests.snapshot:
                    requests.snapshot = False
                    self._snapshot("")
        if self._plan.judged_by and not requests.stop:
            self._judge(scores)

    def _test_each(self) -> list[ScoresOfTest | None]:
        return [None if self._requests.stop else self.test(index) for index in range(len(self._runtime.nets.tests))]

    def test(self, index: int) -> ScoresOfTest | None:
        """Test one test net and log its scores; return ``None`` if a signal stops it, or its test_iter is 0."""
        iteration = self._runtime.iteration
        if not self._plan.test_iter[index]:
            LOG.warning("test_iter is 0: net (#%d) is not tested", index)
            return None
        with self._runtime.events.during(Activity.TEST):
            scores = self._scores(index, iteration)
        if scores is not None and not self._averaged:
            self._notify(Tested(iteration, index, scores))
        return scores

    def _scores(self, index: int, iteration: int) -> ScoresOfTest | None:
        """Return the scores of a net, and log them in Caffe's lines."""
        plan, averaged = self._plan, self._averaged
        LOG.info("Iteration %d, Testing %s (#%d)", iteration, "average of weights" if averaged else "net", index)
        _, operator, outputs = self._runtime.nets.tests[index]
        batches, debug = plan.test_iter[index], plan.debug_info
        scores = run_test(
            operator, batches, self._is_stopped, None, debug, outputs, iteration=iteration, ap_version=plan.ap_version
        )
        if scores is None:
            LOG.info("Test interrupted.")
            return None
        if plan.test_compute_loss:
            LOG.info("%s loss: %s", "Average" if averaged else "Test", number(scores.loss))
        for precisions in scores.precisions.values() if plan.show_per_class_result else ():
            for label, precision in precisions.by_label.items():
                LOG.info("class%d: %s", label, number(precision))
        for line in output_lines(operator.net.graph, scores.outputs, "Average" if averaged else "Test"):
            LOG.info("%s", line)
        return scores

    def _judge(self, scores: Sequence[ScoresOfTest | None]) -> None:
        """Compare a test with the best so far; keep a better one, and request a stop after too many worse ones."""
        plan, runtime, name = self._plan, self._runtime, self._plan.judged_by
        own = [float(each.outputs[name].item()) for each in scores if each is not None and name in each.outputs]
        score = next(value for values in runtime.world.allgather(own) for value in values)
        higher = higher_is_better(plan, [test.operator.net.graph for test in runtime.nets.tests])
        stopping, progress = plan.early_stopping_param, runtime.progress
        best = progress.best = after_test(progress.best, score, runtime.iteration, higher, stopping.min_delta)
        if best.is_new:
            LOG.info("Iteration %d, best %s = %s", runtime.iteration, name, number(score))
            if plan.snapshot_best:
                self._snapshot("best")
        elif plan.stops_early and best.tests_since >= stopping.patience:
            LOG.info(
                "Iteration %d, %s = %s: no better than %s at iteration %d for %d tests, so training ends",
                runtime.iteration, name, number(score), number(best.score), best.iteration, best.tests_since,
            )  # fmt: skip
            self._requests.stop = True

    @contextmanager
    def _without_snapshots(self) -> Iterator[None]:
        """Delay snapshot requests in the block, in which the nets have the average of the weights."""
        self._averaged = True
        try:
            yield
        finally:
            self._averaged = False

    def _is_stopped(self) -> bool:
        """Handle signals during a test; return whether to stop."""
        while (action := self._runtime.status.agree()) is not SignalAction.NONE:
            if action is SignalAction.STOP:
                self._requests.stop = True
            elif self._averaged:
                self._requests.snapshot = True
            else:
                self._snapshot("")
        return self._requests.stop
