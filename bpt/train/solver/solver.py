"""The training loop (Caffe: ``Solver::Solve`` and ``Solver::Step``)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from bpt.base.caller import for_caller
from bpt.base.errors import BptError, LostRankError, RunError
from bpt.base.log import number
from bpt.base.progress import ProgressBar
from bpt.base.signals import SignalAction
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.resolve import plan_of
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.sources import SolverSource
from bpt.nn.net import Net
from bpt.parallel.balance.load_balance import LoadBalanceReport
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.events.event import Activity
from bpt.train.rules.test_output_rules import higher_is_better
from bpt.train.runtime.cleanup import Closeable
from bpt.train.runtime.healing import hosts_of, run_with_recovery, start
from bpt.train.runtime.rank_group import SpareRank
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.testing import ScoresOfTest
from bpt.train.runtime.train_options import DEFAULT_OPTIONS, TrainOptions
from bpt.train.solver.display import DisplayInterval, display_line, output_lines
from bpt.train.solver.milestones import Bound, Displayed, Listener, Milestone, Saved, Tested
from bpt.train.solver.tester import Tester
from bpt.train.state import held_for
from bpt.train.state.best import after_test

LOG = logging.getLogger("bpt")


@dataclass(frozen=True)
class RunOutcome:
    """The way in which a run ended.

    Attributes:
        iterations: that it came to.
        terminated: whether SIGTERM has stopped it.
        short: whether a replay has not come to the end of the run that it repeats.
    """

    iterations: int
    terminated: bool
    short: bool = False


class Solver(Closeable):
    """Caffe's schedule over a Runtime: trains, displays, tests and writes snapshots when they are due.

    On many ranks each has a Solver of the same text; they train together, as ``parallel_param`` says, and give the
    losses and weights of one process.

    Args:
        run: the solver's text, as ``read_solver`` gives it, or a plan.
        options: of the run; see TrainOptions.
        world: the ranks that train together; by default this one is alone.
        listeners: are called with each Milestone.

    Attributes:
        runtime: what trains; a rank that is spare has none, until it takes the place of another.
        loss: of the last iteration.
        listeners: may be changed at any time.
    """

    def __init__(
        self,
        run: SolverSource | RunPlan,
        options: TrainOptions = DEFAULT_OPTIONS,
        *,
        world: Communicator | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.plan = plan_of(run)
        self.listeners = list(listeners)
        self._options = options
        self._lap = DisplayInterval(0)
        self._stopped = False
        self._averaged = self._asked = False
        self._debug = False
        self._leads = False
        self._lock = ExitStack()
        member = start(self.plan, world or SerialCommunicator(), options)
        self._spare = member if isinstance(member, SpareRank) else None
        if isinstance(member, Runtime):
            self._attach(member)
        self._hosts = hosts_of(member.group.everyone) if member.heals else {}
        self._first = self.iter
        self._saved = self.iter, options.resume

    def _attach(self, runtime: Runtime) -> None:
        self.runtime = runtime
        runtime.updater.on_loss.append(self._show_if_due)
        self._tester = Tester(self.plan, runtime.nets.tests, self._interrupted)
        self._seen = LoadBalanceReport(runtime.parallel.batches, self.net.graph)
        self._tell(Bound(runtime))

    def _tell(self, milestone: Milestone) -> None:
        for listener in self.listeners:
            listener(milestone)

    @property
    def net(self) -> Net:
        """The training net."""
        return self.runtime.net

    @property
    def iter(self) -> int:
        """The number of iterations done; 0 on a spare rank."""
        return 0 if self._spare else self.runtime.iteration

    @property
    def loss(self) -> float:
        """The loss of the last iteration."""
        return self.runtime.progress.loss

    @property
    def terminated(self) -> bool:
        """Whether the run was stopped by SIGTERM."""
        return not self._spare and self.runtime.status.terminated

    @property
    def unsaved(self) -> str:
        """The work that is in no snapshot, in words."""
        iteration, path = self._saved
        count = self.iter - iteration
        since = f"since {path}" if path and path != "auto" else f"since iteration {iteration}"
        return f"{count} iteration{'s' * (count != 1)} {since}"

    def close(self, failed: bool = False) -> None:
        """Close all data sources and give shared memory back; a collective call, unless something ``failed``.

        A rank that is lost here, or since the work was done, is not missed in a run that heals.
        """
        self._lock.close()
        run = self._spare or self.runtime
        try:
            run.close(failed)
        except LostRankError:
            if not run.heals:
                raise
            run.group.everyone.Revoke()  # others may wait for this rank

    def set_lr_schedule(self, optim: OptimSpec) -> None:
        """Take learning rates from another spec from now on, of the same rule."""
        self.runtime.set_lr_schedule(optim)
        self.plan = self.runtime.plan

    def restore(self, path: str) -> None:
        """Continue from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
        """
        self.runtime.restore(path)

    def snapshot(self, name: str = "") -> str:
        """Write weights and solver state under ``snapshot_prefix``; return the state's path. A collective call.

        Args:
            name: behind the prefix; by default ``iter_`` and how many iterations are done.

        Raises:
            WriteError: a file could not be written; what stood there before is intact. All ranks raise it.
        """
        with self.runtime.events.during(Activity.SNAPSHOT):
            path = self.runtime.snapshot(name)
        self._saved = self.iter, path
        self._tell(Saved(self.iter, path))
        return path

    def solve(self) -> None:
        """Train up to ``max_iter``, then snapshot and test as the solver says."""
        plan = self.plan
        if not self._spare:
            LOG.info("Solving %s", self.net.graph.name)
            LOG.info("Learning Rate Policy: %s", plan.optim.lr_policy)
            self._seen.start(self.iter)
            self._leads = self.runtime.world.rank == 0
        self._stopped = False
        self._first = self.iter
        with ProgressBar(plan.max_iter, self.iter, "training", self._leads) as progress:
            last = run_with_recovery(
                self._spare or self.runtime, self._hosts, self._options, partial(self._solve, progress)
            )
        self._spare = last if isinstance(last, SpareRank) else None

    def _go_on(self, runtime: Runtime) -> None:
        """Continue after a loss with the remaining run, from the same point on all ranks."""
        plan, world = self.plan, runtime.world
        if world.rank == 0 and not self._leads:
            self._leads = True
            try:
                self._lock.enter_context(held_for(plan))
            except BptError as error:  # a lock may outlast a host that is dead
                LOG.warning("%s", error)
        before = None if self._spare else self.runtime.status
        self._spare = None
        self._attach(runtime)
        pending, terminated = (before.pending, before.terminated) if before else (SignalAction.NONE, False)
        stopped, asked = self._stopped or pending is SignalAction.STOP, self._asked or pending is SignalAction.SNAPSHOT
        facts = world.allgather((self._first, stopped, asked, terminated))
        self._first = max(first for first, *_ in facts)
        self._stopped, self._asked = any(stopped for _, stopped, _, _ in facts), False
        runtime.status.terminated = any(terminated for *_, terminated in facts)
        least = plan.parallel_param.fault_param.min_ranks
        if world.size < least:
            path = self.snapshot()
            raise RunError(f"{world.size} ranks are left, fewer than min_ranks: {least}; wrote {path}")
        asked = any(asked for _, _, asked, _ in facts)
        if asked or (plan.snapshot and self.iter % plan.snapshot == 0 and self.iter > self._first):
            self.snapshot()  # that, or less, may have been under way when the rank was lost

    def _solve(self, progress: ProgressBar, runtime: Runtime) -> None:
        plan = self.plan
        if self._spare or runtime is not self.runtime:
            self._go_on(runtime)
        elif self.iter >= plan.max_iter:
            LOG.warning("Iteration %d is reached already, max_iter is %d: nothing to train", self.iter, plan.max_iter)
            return
        if not self._stopped:
            self.step(plan.max_iter - self.iter, progress)
        self._seen.log(self.iter)
        runtime.tuner.finish()
        if plan.snapshot_after_train and (not plan.snapshot or self.iter % plan.snapshot):
            self.snapshot()
        if self._stopped:
            self._tell_what_is_saved()
            LOG.info("Optimization stopped early.")
            return
        # The loss and scores after the last update, where the display falls on it.
        if plan.display and self.iter % plan.display == 0:
            # Caffe leaves debug_info as the last iteration had it.
            with runtime.events.during(Activity.DISPLAY):
                runtime.updater.losses.add(self.iter, runtime.forward_only(self._debug))
            LOG.info("Iteration %d, loss = %s", self.iter, number(runtime.updater.losses.value))
        if plan.test_interval and self.iter % plan.test_interval == 0:
            self.test_all()
        runtime.checkpoint.forget_in_memory()
        LOG.info("Optimization Done.")

    def _tell_what_is_saved(self) -> None:
        iteration, path = self._saved
        if iteration == self.iter and path:
            how = for_caller(f"--snapshot {path}", f'solver.restore("{path}")')
            LOG.info("Stopped after %d iterations, all of them saved; %s continues", iteration, how)
        else:
            LOG.warning("Stopped after %d iterations without a snapshot; lost: %s", self.iter, self.unsaved)

    def step(self, iterations: int, progress: ProgressBar | None = None) -> None:
        """Train ``iterations`` more iterations; test and write snapshots when they are due."""
        plan, runtime = self.plan, self.runtime
        last = self.iter + iterations
        self._lap = DisplayInterval(self.iter)
        while self.iter < last:
            testing = (
                plan.test_interval and self.iter % plan.test_interval == 0 and self.iter != runtime.progress.tested
            )
            if testing and (self.iter > 0 or plan.test_initialization):
                self.test_all()
                if self._stopped:
                    return
                runtime.progress.tested = self.iter
            self._debug = self._displays and plan.debug_info
            tuning = not runtime.tuner.settled
            loss = runtime.iterate(self._debug, observed=self.iter == last - 1)
            with runtime.events.during(Activity.BETWEEN):
                if tuning and runtime.tuner.settled:
                    self._seen.start(self.iter)
                if progress:
                    progress.to(self.iter, loss)
            action = runtime.status.action
            if (plan.snapshot and self.iter % plan.snapshot == 0) or action is SignalAction.SNAPSHOT:
                self.snapshot()
            else:
                runtime.snapshot_in_memory()
            if action is SignalAction.STOP:
                self._stopped = True
                return

    @property
    def _displays(self) -> bool:
        """Whether this iteration is shown."""
        return bool(self.plan.display) and self.iter % self.plan.display == 0

    def _show_if_due(self, loss: float) -> None:
        if self._displays:
            with self.runtime.events.during(Activity.DISPLAY):
                self._show()

    def _show(self) -> None:
        runtime, iteration = self.runtime, self.iter
        outputs = runtime.nets.train.outputs.whole(runtime.passes.operator.values)
        rate = runtime.updater.rates(iteration)
        lap, loss = self._lap.take(iteration), runtime.updater.losses.value
        LOG.info("%s", display_line(iteration, loss, lap, self.plan.display))
        for line in output_lines(self.net.graph, outputs, "Train"):
            LOG.info("%s", line)
        LOG.info("Iteration %d, lr = %s", iteration, number(rate))
        self._tell(Displayed(iteration, loss, outputs, rate, *lap))

    def test_all(self) -> None:
        """Test every test net and log its scores, then again with the average of the weights, if there is one."""
        with self.runtime.testing():
            scores = self._test_each()
            if self.runtime.has_average and not self._stopped:
                with self.runtime.averaged(), self._without_snapshots():
                    scores = self._test_each(averaged=True)
                if self._asked:
                    self._asked = False
                    self.snapshot()
        if self.plan.judged_by and not self._stopped:
            self._judge(scores)

    def _test_each(self, averaged: bool = False) -> list[ScoresOfTest | None]:
        indices = range(len(self.runtime.nets.tests))
        return [None if self._stopped else self.test(index, averaged) for index in indices]

    def test(self, index: int, averaged: bool = False) -> ScoresOfTest | None:
        """Test one test net and log its scores; ``None`` if a signal has stopped it, or its test_iter is 0.

        Args:
            averaged: the nets have the average of the weights now.
        """
        if not self.plan.test_iter[index]:
            LOG.warning("test_iter is 0: net (#%d) is not tested", index)
            return None
        with self.runtime.events.during(Activity.TEST):
            scores = self._tester.test(index, self.iter, averaged)
        if scores is not None and not averaged:
            self._tell(Tested(self.iter, index, scores))
        return scores

    def _judge(self, scores: Sequence[ScoresOfTest | None]) -> None:
        """Note whether this was the best test so far; keep it, or end training without progress for long."""
        plan, runtime, name = self.plan, self.runtime, self.plan.judged_by
        own = [float(each.outputs[name].item()) for each in scores if each is not None and name in each.outputs]
        score = next(value for values in runtime.world.allgather(own) for value in values)
        higher = higher_is_better(plan, [test.operator.net.graph for test in runtime.nets.tests])
        stopping = plan.early_stopping_param
        best = runtime.progress.best = after_test(runtime.progress.best, score, self.iter, higher, stopping.min_delta)
        if best.is_new:
            LOG.info("Iteration %d, best %s = %s", self.iter, name, number(score))
            if plan.snapshot_best:
                self.snapshot("best")
        elif plan.stops_early and best.tests_since >= stopping.patience:
            LOG.info(
                "Iteration %d, %s = %s: no better than %s at iteration %d for %d tests, so training ends",
                self.iter, name, number(score), number(best.score), best.iteration, best.tests_since,
            )  # fmt: skip
            self._stopped = True

    @contextmanager
    def _without_snapshots(self) -> Iterator[None]:
        """Delay snapshot requests inside, where the nets do not have the weights."""
        self._averaged = True
        try:
            yield
        finally:
            self._averaged = False

    def _interrupted(self) -> bool:
        """Handle the signals that came during a test; return whether to stop."""
        while (action := self.runtime.status.agree()) is not SignalAction.NONE:
            if action is SignalAction.SNAPSHOT and self._averaged:
                self._asked = True
            elif action is SignalAction.SNAPSHOT:
                self.snapshot()
            else:
                self._stopped = True
        return self._stopped
