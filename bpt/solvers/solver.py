"""The training loop (Caffe: ``Solver::Solve`` and ``Solver::Step``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import TracebackType

import torch
from torch import nn

from bpt.allocator import release_free_memory
from bpt.context import RunContext
from bpt.device import CPU, synchronize, use_line
from bpt.graph.segments import per_layer, whole
from bpt.net import Net
from bpt.operators.layout import LayoutChoice
from bpt.operators.local import LocalOperator
from bpt.proto import bpt_pb2 as pb
from bpt.proto.solver import SolverSource
from bpt.proto.text import to_text
from bpt.report.log import number
from bpt.report.progress import Progress
from bpt.solvers import lr_policy, snapshot, state
from bpt.solvers.check import check_solver
from bpt.solvers.display import Lap, output_lines
from bpt.solvers.iteration import forward_pass, run_iteration
from bpt.solvers.losses import SmoothedLoss
from bpt.solvers.making import make_net
from bpt.solvers.nets import NetPlan, test_plans, train_plan
from bpt.solvers.signals import Action, SignalActions
from bpt.solvers.testing import run_test
from bpt.solvers.update_rules import make_rule

LOG = logging.getLogger("bpt")

Built = tuple[NetPlan, LocalOperator]


class Solver:
    """Trains the net that a solver text names, tests it and writes snapshots.

    Args:
        source: the solver's text, as ``read_solver`` gives it.
        device: where to compute.
        signals: where signals are noted; ``None``: signals keep their usual effect.
        observable: cut the nets into one segment a layer, so that every blob and diff can be looked at
            between steps (the Python interface and ``debug_info`` want that); costs speed and memory.
        resume: a solver state to go on from; "auto" takes the newest good one under ``snapshot_prefix``,
            if there is any.
    """

    def __init__(
        self,
        source: SolverSource,
        *,
        device: torch.device = CPU,
        signals: SignalActions | None = None,
        observable: bool = False,
        resume: str = "",
    ) -> None:
        self.param = source.param
        self.device = device
        self.iter = 0
        self._signals = signals
        self._stopped = False
        self._debug = False
        for note in source.notes:
            LOG.info("%s", note)
        LOG.info("%s", use_line(device))
        LOG.info("Initializing solver from parameters: \n%s", to_text(self.param).rstrip())
        check_solver(source)
        train, tests = train_plan(source), test_plans(source)  # what is wrong in them shows before anything is built
        resume = state.state_to_resume(self.param, resume)
        self.context = RunContext(seed=state.choose_seed(self.param, resume))
        self._cut = per_layer if observable or self.param.debug_info else whole
        self.train = self._build("training net from", train)
        if not self.net.graph.losses:
            LOG.warning("The training net has no loss: nothing will be learned")
        shared = self.net.values_by_name()
        self.tests = [
            self._build(f"test net (#{index}) specified by", plan, shared) for index, plan in enumerate(tests)
        ]
        for path in snapshot.weight_files(self.param.weights, source.path):
            LOG.info("Finetuning from %s", path)
            for net in self._nets().values():  # a test net may have layers of its own
                snapshot.load_weights(net, path)
        self.rule = make_rule(self.param, self.net, keep_updates=observable)
        self._losses = SmoothedLoss(self.param.average_loss)
        self._lap = Lap(0)
        # Numpy arrays of blobs are handed out in their usual order.
        self._layout = LayoutChoice(pb.SolverParameter.CONTIGUOUS if observable else self.param.engine)
        self._use_layout()
        if resume:
            self.restore(resume)

    def _build(self, what: str, plan: NetPlan, shared: Mapping[tuple[str, int], nn.Parameter] | None = None) -> Built:
        LOG.info("Creating %s %s", what, plan.described_by)
        for note in plan.source.notes:
            LOG.info("%s", note)
        graph = plan.graph()
        net = make_net(graph, self.device, self.context, shared)
        outputs = ", ".join(edge.blob for edge in graph.outputs)
        LOG.info("%s: %d layers, %d parameters, outputs %s", graph.name, len(graph), graph.num_parameters, outputs)
        return plan, LocalOperator(net, self._cut(graph), self.device)

    @property
    def net(self) -> Net:
        """The net that is trained."""
        return self.train[1].net

    def __enter__(self) -> Solver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading ahead and close all data sources."""
        for _, operator in (self.train, *self.tests):
            operator.net.close()

    def restore(self, path: str) -> None:
        """Go on from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
        """
        LOG.info("Resuming from %s", path)
        saved = snapshot.restore(path, self.net, self.rule)
        self.iter = saved.iter
        self._losses = SmoothedLoss(self.param.average_loss, saved.loss_history)
        state.restore_positions(saved, self._nets())
        if saved.engine:  # what the run had settled on
            self._layout.settle(saved.engine)
            self._use_layout()
        if saved.HasField("random_seed") and saved.random_seed != self.context.seed:
            LOG.warning(
                "the snapshot was made with random_seed %d, this run has %d: data order, augmentation and dropout "
                "go on with other random numbers",
                saved.random_seed,
                self.context.seed,
            )

    def snapshot(self) -> str:
        """Write weights and solver state under ``snapshot_prefix``; returns the state's path.

        Raises:
            WriteError: a file could not be written; what stood there before is intact.
        """
        saved = pb.SolverState(
            iter=self.iter,
            loss_history=self._losses.history,
            random_seed=self.context.seed,
            solver_type=self.param.type,
        )
        # This run and the one that resumes it must go on in one layout, or their roundings part.
        if not self._layout.settled:
            self._layout.settle()
            LOG.info("Engine: %s, since a snapshot is due before all trials are done", self._layout)
        self._use_layout()
        saved.engine = self._layout.engine  # type: ignore[assignment]
        saved.data_position.extend(state.positions(self._nets()))
        return snapshot.write(self.param, self.net, self.rule, saved)

    def _nets(self) -> dict[str, Net]:
        """The nets under the names that a snapshot gives them."""
        return {"train": self.net} | {f"test#{i}": operator.net for i, (_, operator) in enumerate(self.tests)}

    def solve(self) -> None:
        """Train up to ``max_iter``, then snapshot and test as the solver says."""
        param = self.param
        LOG.info("Solving %s", self.net.graph.name)
        LOG.info("Learning Rate Policy: %s", param.lr_policy)
        self._stopped = False
        if self.iter >= param.max_iter:
            LOG.warning("Iteration %d is reached already, max_iter is %d: nothing to train", self.iter, param.max_iter)
            return
        with Progress(param.max_iter, self.iter, "training") as progress:
            self.step(param.max_iter - self.iter, progress)
        if param.snapshot_after_train and (not param.snapshot or self.iter % param.snapshot):
            self.snapshot()
        if self._stopped:
            LOG.info("Optimization stopped early.")
            return
        # The loss and scores after the last update, where the display falls on it.
        if param.display and self.iter % param.display == 0:
            # Caffe leaves debug_info as the last iteration had it.
            self._losses.add(self.iter, forward_pass(self.train[1], debug=self._debug))
            LOG.info("Iteration %d, loss = %s", self.iter, number(self._losses.value))
        if param.test_interval and self.iter % param.test_interval == 0:
            self.test_all()
        LOG.info("Optimization Done.")

    def step(self, iterations: int, progress: Progress | None = None) -> None:
        """Train ``iterations`` more iterations; test and write snapshots when they are due."""
        param = self.param
        last = self.iter + iterations
        self._lap = Lap(self.iter)
        while self.iter < last:
            testing = param.test_interval and self.iter % param.test_interval == 0
            if testing and (self.iter > 0 or param.test_initialization):
                self.test_all()
                if self._stopped:
                    return
            start = time.perf_counter()
            loss = self._iterate()
            self._note_time(start)
            self.iter += 1
            if progress:
                progress.advance(loss)
            action = self._action()
            if (param.snapshot and self.iter % param.snapshot == 0) or action is Action.SNAPSHOT:
                self.snapshot()
            if action is Action.STOP:
                self._stopped = True
                return

    def _note_time(self, start: float) -> None:
        """Let the choice of the memory layout know how long the iteration took."""
        if not self._layout.settled:
            synchronize(self.device)
            if self._layout.record(time.perf_counter() - start):
                LOG.info("Engine: %s", self._layout)
            self._use_layout()

    def _use_layout(self) -> None:
        if self.train[1].engine != self._layout.engine:
            release_free_memory()  # blocks of the other layout's sizes would lie idle beside the new ones
        for _, operator in (self.train, *self.tests):
            operator.engine = self._layout.engine

    def _iterate(self) -> float:
        """Train one iteration; returns its loss."""
        self.context.iteration = self.iter
        lr_policy.log_step(self.param, self.iter)
        self._debug = self._displays and self.param.debug_info
        return run_iteration(self.train[1], self.context, self.param.iter_size, self._update, self._debug)

    @property
    def _displays(self) -> bool:
        """Whether this iteration is shown."""
        return bool(self.param.display) and self.iter % self.param.display == 0

    def _update(self, loss: float) -> None:
        """Show the iteration if it is due, and update the parameters; in this order, as Caffe does."""
        self._losses.add(self.iter, loss)
        rate = lr_policy.learning_rate(self.param, self.iter)
        if self._displays:
            self._show(rate)
        self.rule.update(rate, self.iter)

    def _show(self, rate: float) -> None:
        iterations, seconds = self._lap.take(self.iter)
        LOG.info(
            "Iteration %d (%s iter/s, %ss/%d iters), loss = %s",
            self.iter,
            number(iterations / seconds),
            number(seconds),
            self.param.display,
            number(self._losses.value),
        )
        graph, values = self.net.graph, self.train[1].values
        for line in output_lines(graph, {edge.blob: values[edge.index] for edge in graph.outputs}, "Train"):
            LOG.info("%s", line)
        LOG.info("Iteration %d, lr = %s", self.iter, number(rate))

    def test_all(self) -> None:
        """Test every test net and log its scores."""
        for index in range(len(self.tests)):
            if not self._stopped:
                self._test(index)

    def _test(self, index: int) -> None:
        LOG.info("Iteration %d, Testing net (#%d)", self.iter, index)
        operator = self.tests[index][1]
        scores = run_test(operator, self.param.test_iter[index], self._interrupted, debug=self.param.debug_info)
        if scores is None:
            LOG.info("Test interrupted.")
            return
        if self.param.test_compute_loss:
            LOG.info("Test loss: %s", number(scores.loss))
        for line in output_lines(operator.net.graph, scores.outputs, "Test"):
            LOG.info("%s", line)

    def _interrupted(self) -> bool:
        """Serve the signals that came during a test; whether to stop."""
        while (action := self._action()) is not Action.NONE:
            if action is Action.SNAPSHOT:
                self.snapshot()
            else:
                self._stopped = True
        return self._stopped

    def _action(self) -> Action:
        return self._signals.take() if self._signals else Action.NONE

