"""The training loop (Caffe: ``Solver::Solve`` and ``Solver::Step``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
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
from bpt.engine.late_loss import known
from bpt.nn.net import Net
from bpt.parallel.balance.load_balance import LoadBalanceReport
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.events.event import Activity
from bpt.train.runtime.cleanup import Closeable
from bpt.train.runtime.healing import hosts_of, run_with_recovery, start
from bpt.train.runtime.rank_group import SpareRank
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.testing import ScoresOfTest
from bpt.train.runtime.train_options import DEFAULT_OPTIONS, TrainOptions
from bpt.train.solver.display import TrainingDisplay
from bpt.train.solver.milestones import Bound, Listener, Milestone, Saved
from bpt.train.solver.tester import Requests, Tester
from bpt.train.state import held_for

LOG = logging.getLogger("bpt")


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run.

    Attributes:
        iterations: number of completed iterations.
        terminated: whether SIGTERM has stopped it.
        short: whether a replay has ended before the run that it repeats.
    """

    iterations: int
    terminated: bool
    short: bool = False


@dataclass(frozen=True)
class _Session:
    """A runtime with its display and its tester; after a loss of ranks there is a new one."""

    runtime: Runtime
    tester: Tester
    display: TrainingDisplay
    balance: LoadBalanceReport


class Solver(Closeable):
    """Caffe's schedule over a Runtime: trains, displays, tests and writes snapshots when they are due.

    With several ranks, each has a Solver with the same text. They train together by ``parallel_param``, and give the
    losses and weights of a single process.

    Args:
        run: the solver's text from ``read_solver``, or a plan.
        options: the options of the run.
        world: the ranks that train together; by default this rank is alone.
        listeners: functions to call with each Milestone.

    Attributes:
        plan: the run.
        listeners: functions to call with each Milestone; the list may be changed at any time.
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
        self._requests = Requests()
        self._leads = False  # whether this rank holds the lock on the snapshots, and shows the progress
        self._lock = ExitStack()
        member = start(self.plan, world or SerialCommunicator(), options)
        self._member: _Session | SpareRank = member if isinstance(member, SpareRank) else self._session_of(member)
        self._hosts = hosts_of(member.group.everyone) if member.heals else {}
        self._first = self.iter
        self._saved = self.iter, options.resume
        if isinstance(member, Runtime):
            self._notify(Bound(member))

    def _session_of(self, runtime: Runtime) -> _Session:
        return _Session(
            runtime,
            Tester(self.plan, runtime, self._requests, self.snapshot, self._notify),
            TrainingDisplay(self.plan, runtime, self._notify),
            LoadBalanceReport(runtime.parallel.batches, runtime.graph),
        )

    def _notify(self, milestone: Milestone) -> None:
        for listener in self.listeners:
            listener(milestone)

    @property
    def _session(self) -> _Session:
        assert isinstance(self._member, _Session), "a rank that is spare has no runtime"
        return self._member

    @property
    def _run(self) -> Runtime | SpareRank:
        return self._member.runtime if isinstance(self._member, _Session) else self._member

    @property
    def runtime(self) -> Runtime:
        """The Runtime that trains; a spare rank has none until it replaces another rank."""
        return self._session.runtime

    @property
    def net(self) -> Net:
        """The training net."""
        return self.runtime.net

    @property
    def iter(self) -> int:
        """The number of completed iterations; 0 on a spare rank."""
        return 0 if isinstance(self._member, SpareRank) else self.runtime.iteration

    @property
    def loss(self) -> float:
        """The loss of the last iteration."""
        return self.runtime.progress.loss

    @property
    def terminated(self) -> bool:
        """Whether the run was stopped by SIGTERM."""
        return isinstance(self._member, _Session) and self.runtime.status.terminated

    @property
    def unsaved(self) -> str:
        """The work since the last snapshot, in words."""
        iteration, path = self._saved
        count = self.iter - iteration
        since = f"since {path}" if path and path != "auto" else f"since iteration {iteration}"
        return f"{count} iteration{'s' * (count != 1)} {since}"

    def close(self, failed: bool = False) -> None:
        """Close all data sources and free shared memory; a collective call, unless something ``failed``.

        In a run that heals, it ignores the loss of a rank after the end of the work.
        """
        self._lock.close()
        run = self._run
        try:
            run.close(failed)
        except LostRankError:
            if not run.heals:
                raise
            run.group.everyone.Revoke()  # others may wait for this rank

    def set_lr_schedule(self, optim: OptimSpec) -> None:
        """Replace the schedule of learning rates by that of ``optim``, which has the same rule."""
        self.runtime.set_lr_schedule(optim)
        self.plan = self.runtime.plan

    def restore(self, path: str) -> None:
        """Continue from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; the message names it.
        """
        self.runtime.restore(path)

    def snapshot(self, name: str = "") -> str:
        """Write weights and solver state under ``snapshot_prefix``; return the state's path. A collective call.

        Args:
            name: the name after the prefix; by default ``iter_`` and the number of iterations.

        Raises:
            WriteError: a file could not be written; the previous file is intact. All ranks raise it.
        """
        with self.runtime.events.during(Activity.SNAPSHOT):
            path = self.runtime.snapshot(name)
        self._saved = self.iter, path
        self._notify(Saved(self.iter, path))
        return path

    def solve(self) -> None:
        """Train up to ``max_iter``, then snapshot and test as the solver says."""
        plan = self.plan
        if isinstance(self._member, _Session):
            LOG.info("Solving %s", self.net.graph.name)
            LOG.info("Learning Rate Policy: %s", plan.optim.lr_policy)
            self._member.balance.start(self.iter)
            self._leads = self.runtime.world.rank == 0
        self._requests.stop = False
        self._first = self.iter
        with ProgressBar(plan.max_iter, self.iter, "training", self._leads) as progress:
            last = run_with_recovery(self._run, self._hosts, self._options, partial(self._solve, progress))
        if isinstance(last, SpareRank):
            self._member = last

    def _continue_with(self, runtime: Runtime) -> None:
        """Continue after a loss with the remaining run, from the same point on all ranks."""
        plan, world = self.plan, runtime.world
        if world.rank == 0 and not self._leads:
            self._leads = True
            try:
                self._lock.enter_context(held_for(plan))
            except BptError as error:  # the lock of a dead host may remain
                LOG.warning("%s", error)
        before = self._member.runtime.status if isinstance(self._member, _Session) else None
        self._member = self._session_of(runtime)
        self._notify(Bound(runtime))
        pending, terminated = (before.pending, before.terminated) if before else (SignalAction.NONE, False)
        requests = self._requests
        stop = requests.stop or pending is SignalAction.STOP
        snapshot = requests.snapshot or pending is SignalAction.SNAPSHOT
        facts = world.allgather((self._first, stop, snapshot, terminated))
        self._first = max(first for first, *_ in facts)
        requests.stop, requests.snapshot = any(stop for _, stop, _, _ in facts), False
        runtime.status.terminated = any(terminated for *_, terminated in facts)
        least = plan.parallel_param.fault_param.min_ranks
        if world.size < least:
            path = self.snapshot()
            raise RunError(f"{world.size} ranks are left, fewer than min_ranks: {least}; wrote {path}")
        wanted = any(snapshot for _, _, snapshot, _ in facts)
        if wanted or (plan.snapshot and self.iter % plan.snapshot == 0 and self.iter > self._first):
            self.snapshot()  # the loss may have interrupted a snapshot

    def _solve(self, progress: ProgressBar, runtime: Runtime) -> None:
        plan = self.plan
        if runtime is not self._run:
            self._continue_with(runtime)
        elif self.iter >= plan.max_iter:
            LOG.warning("Iteration %d is reached already, max_iter is %d: nothing to train", self.iter, plan.max_iter)
            return
        if not self._requests.stop:
            self.step(plan.max_iter - self.iter, progress)
        self._session.balance.log(self.iter)
        runtime.tuner.finish()
        if plan.snapshot_after_train and (not plan.snapshot or self.iter % plan.snapshot):
            self.snapshot()
        if self._requests.stop:
            self._log_what_is_saved()
            LOG.info("Optimization stopped early.")
            return
        # As in Caffe, show the loss and the scores after the last update if it is a displayed iteration.
        if plan.displays(self.iter):
            # Caffe leaves debug_info as the last iteration had it.
            debug = self._session.display.debugs(self.iter - 1)
            with runtime.events.during(Activity.DISPLAY):
                runtime.updater.losses.add(self.iter, runtime.forward_only(debug))
            LOG.info("Iteration %d, loss = %s", self.iter, number(runtime.updater.losses.value))
        if plan.test_interval and self.iter % plan.test_interval == 0:
            self._session.tester.test_all()
        runtime.checkpoint.forget_in_memory()
        LOG.info("Optimization Done.")

    def _log_what_is_saved(self) -> None:
        iteration, path = self._saved
        if iteration == self.iter and path:
            how = for_caller(f"--snapshot {path}", f'solver.restore("{path}")')
            LOG.info("Stopped after %d iterations, all of them saved; %s continues", iteration, how)
        else:
            LOG.warning("Stopped after %d iterations without a snapshot; lost: %s", self.iter, self.unsaved)

    def step(self, iterations: int, progress: ProgressBar | None = None) -> None:
        """Train ``iterations`` more iterations; test and write snapshots when they are due."""
        plan, session, runtime = self.plan, self._session, self.runtime
        last = self.iter + iterations
        session.display.begin_interval()
        while self.iter < last:
            due = plan.test_interval and self.iter % plan.test_interval == 0
            if due and self.iter != runtime.progress.tested and (self.iter > 0 or plan.test_initialization):
                session.tester.test_all()
                if self._requests.stop:
                    return
                runtime.progress.tested = self.iter
            tuning = not runtime.tuner.settled
            loss = runtime.train(session.display.debugs(self.iter), observed=self.iter == last - 1)
            with runtime.events.during(Activity.BETWEEN):
                if tuning and runtime.tuner.settled:
                    session.balance.start(self.iter)
                if progress:
                    progress.to(self.iter, known(loss))
            action = runtime.status.action
            if (plan.snapshot and self.iter % plan.snapshot == 0) or action is SignalAction.SNAPSHOT:
                self.snapshot()
            else:
                runtime.snapshot_in_memory()
            if action is SignalAction.STOP:
                self._requests.stop = True
                return
        runtime.read_losses()

    def test(self, index: int) -> ScoresOfTest | None:
        """Test one test net and log its scores; return ``None`` if a signal stops it, or its test_iter is 0."""
        return self._session.tester.test(index)
