"""The training loop (Caffe: ``Solver::Solve`` and ``Solver::Step``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

import torch

from bpt import state as snapshot
from bpt.comm.base import Communicator
from bpt.comm.serial import SerialCommunicator
from bpt.device import CPU, use_line
from bpt.events.event import Activity
from bpt.execute.executor import Executor
from bpt.layers.prefetching import PrefetchingDataLayer
from bpt.net import Net
from bpt.optim import lr_policy
from bpt.optim.rules import make_rule
from bpt.plan.resolve import plan_of
from bpt.plan.spec import RunPlan
from bpt.plan.violations import refuse, violations_here, violations_in_step
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource
from bpt.report.log import number
from bpt.report.progress import Progress
from bpt.runtime import starting_point as state
from bpt.runtime.agreement import check_same, data_facts, facts_of, outcome_of_first
from bpt.runtime.autotuner import Autotuner
from bpt.runtime.balancing import SeenBalance
from bpt.runtime.built_nets import Builder, MakeOperator
from bpt.runtime.checkpoint import Checkpoint
from bpt.runtime.chunks.tuner import Chunks
from bpt.runtime.spreading import spread
from bpt.runtime.testing import Scores
from bpt.runtime.tuned_settings import Engine, Inner
from bpt.signals import Action, SignalActions
from bpt.solver.display import Lap, output_lines
from bpt.solver.smoothed_loss import SmoothedLoss
from bpt.solver.tester import Tester

LOG = logging.getLogger("bpt")


class Solver:
    """Trains the net that a solver text names, tests it and writes snapshots.

    On many ranks each has a Solver of the same text; they train together, as ``parallel_param`` says, and give the
    losses and weights of one process.

    Args:
        run: a solver's text, as ``read_solver`` gives it, or the plan of one.
        device: where to compute.
        world: the ranks that train together; by default this one is alone.
        signals: where signals are noted; ``None``: signals keep their usual effect.
        observable: cut the nets into one segment a layer, so that every blob and diff can be looked at
            between steps (the Python interface and ``debug_info`` want that); costs speed and memory.
        resume: a solver state to go on from; "auto" takes the newest good one under ``snapshot_prefix``,
            if there is any.
        make_operator: makes what runs a net, instead of the usual one for ``parallel_param``.
        batch_factor: a batch has so many times the samples that the net's text says; see Parallel.
        cuts: train in micro-batches without stages; see Staging.
    """

    def __init__(
        self,
        run: SolverSource | RunPlan,
        *,
        device: torch.device = CPU,
        world: Communicator | None = None,
        signals: SignalActions | None = None,
        observable: bool = False,
        resume: str = "",
        make_operator: MakeOperator | None = None,
        batch_factor: int | None = None,
        cuts: tuple[int, ...] = (),
    ) -> None:
        self.plan = plan = plan_of(run)
        self.device = device
        self.iter = 0
        self.loss = 0.0  # of the last iteration
        self.before_update: Callable[[], object] = lambda: None  # called when the gradients are those of all ranks
        self._stopped = False
        self._debug = False
        world = world or SerialCommunicator()
        for note in plan.notes:
            LOG.info("%s", note)
        LOG.info("%s", use_line(device))
        LOG.info("Initializing solver from parameters: \n%s", plan.text)
        refuse(plan, violations_in_step(plan))
        refuse(plan, violations_here(plan) if world.rank == 0 else ())
        train, tests = plan.train, plan.tests  # what is wrong in them shows before anything is built
        graph, *test_graphs = (net.graph() for net in (train, *tests))
        snapshot.check_names(plan, graph)
        check_same(world, facts_of(plan, graph, *test_graphs))
        self.parallel = spread(plan, graph, world, device, batch_factor, test_graphs, cuts)
        resume, seed = outcome_of_first(world, None if world.rank else lambda: state.start_of(plan, resume))
        self.seed = seed
        observable = observable or plan.debug_info
        builder = Builder(device, seed, plan.precision, self.parallel, observable, make_operator)
        self.train = builder.build("training net from", train, graph)
        if not self.net.graph.losses:
            LOG.warning("The training net has no loss: nothing will be learned")
        shared = self.net.values_by_name()
        self.tests = [
            builder.build(f"test net (#{index}) specified by", test, test_graph, shared)
            for index, (test, test_graph) in enumerate(zip(tests, test_graphs, strict=True))
        ]
        nets = {"train": self.net} | {f"test#{index}": built.operator.net for index, built in enumerate(self.tests)}
        if self.parallel.has_outputs:
            check_same(self.parallel.samples, data_facts(nets))
        for path in snapshot.weight_files(plan.weights, plan.path):
            LOG.info("Finetuning from %s", path)
            for net in nets.values():  # a test net may have layers of its own
                snapshot.load_weights(net, path)
        self._tester = Tester(plan, self.tests, self._interrupted)
        self.rule = make_rule(plan.optim, self.net, keep_updates=observable or plan.snapshot_diff)
        self._losses = SmoothedLoss(plan.average_loss)
        self._lap = Lap(0)
        # Numpy arrays of blobs are handed out in their usual order.
        engine = pb.SolverParameter.CONTIGUOUS if observable else plan.engine
        operators = [built.operator for built in (self.train, *self.tests)]
        self._engines = Engine(engine, operators, world), Inner(plan.parallel_param, operators, world)
        self._checkpoint = Checkpoint(plan, nets, self.rule, seed, *self._engines, self.parallel)
        if resume:
            self.restore(resume)
        self._join(signals, observable)

    def _join(self, signals: SignalActions | None, observable: bool) -> None:
        """Begin to train together with the other ranks, from the weights of the first."""
        parallel, operator = self.parallel, self.train.operator
        self._share_weights()
        self.exchange = parallel.exchange(self.net, operator.segments, self.device)
        self.events = parallel.grid.world.events
        self.events.layers_of = lambda segment: operator.segments[segment].describe(operator.net.graph)
        for built in (self.train, *self.tests):
            for layer in built.operator.net.data_layers().values():
                if isinstance(layer, PrefetchingDataLayer):
                    layer.report_to(self.events)
        self.chunks = Chunks(parallel, operator, self.exchange, self.plan, fixed=observable)
        self.trials = Autotuner(self._engines, self.chunks, self.device)
        self.rule.shard_info = parallel.shard_info(self.net, self.exchange)
        self._status = parallel.status(signals)
        self._seen = SeenBalance(parallel, self.net.graph)
        rule = parallel.staging.rule if parallel.staging else pb.PipelineParameter.SEQUENTIAL
        self.executor = Executor(
            operator, self.exchange, self._status, self.events, self.plan.optim.iter_size, rule
        )

    def _share_weights(self) -> None:
        """Let all ranks have the first one's weights: fillers and files may differ on unlike machines."""
        for built in (self.train, *self.tests):
            self.parallel.agree(built.operator.net, everything=True)

    @property
    def net(self) -> Net:
        """The net that is trained."""
        return self.train.operator.net

    @property
    def terminated(self) -> bool:
        """Whether the run was stopped by SIGTERM."""
        return self._status.terminated

    def __enter__(self) -> Solver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

    def close(self, failed: bool = False) -> None:
        """Close all data sources and give shared memory back; a collective call, unless something ``failed``."""
        for built in (self.train, *self.tests):
            built.operator.net.close()
        self.exchange.close(failed)
        self._status.close()
        self.parallel.close()

    def restore(self, path: str) -> None:
        """Go on from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
        """
        saved = self._checkpoint.restore(path)
        self.iter = saved.iter
        self._losses = SmoothedLoss(self.plan.average_loss, saved.loss_history)
        self._share_weights()

    def snapshot(self) -> str:
        """Write weights and solver state under ``snapshot_prefix``; returns the state's path. A collective call.

        Raises:
            WriteError: a file could not be written; what stood there before is intact. All ranks raise it.
        """
        with self.events.during(Activity.SNAPSHOT):
            return self._checkpoint.write(self.iter, self._losses.history)

    def solve(self) -> None:
        """Train up to ``max_iter``, then snapshot and test as the solver says."""
        plan = self.plan
        LOG.info("Solving %s", self.net.graph.name)
        LOG.info("Learning Rate Policy: %s", plan.optim.lr_policy)
        self._stopped = False
        if self.iter >= plan.max_iter:
            LOG.warning("Iteration %d is reached already, max_iter is %d: nothing to train", self.iter, plan.max_iter)
            return
        shown = self.parallel.grid.world.rank == 0
        self._seen.start(self.iter)
        with Progress(plan.max_iter, self.iter, "training", shown) as progress:
            self.step(plan.max_iter - self.iter, progress)
        self._seen.log(self.iter)
        self.trials.finish()
        if plan.snapshot_after_train and (not plan.snapshot or self.iter % plan.snapshot):
            self.snapshot()
        if self._stopped:
            LOG.info("Optimization stopped early.")
            return
        # The loss and scores after the last update, where the display falls on it.
        if plan.display and self.iter % plan.display == 0:
            # Caffe leaves debug_info as the last iteration had it.
            with self.events.during(Activity.DISPLAY):
                own = self.executor.evaluate(self.iter - 1, self.plan.optim.iter_size - 1, debug=self._debug)
                loss = self.train.outputs.total(own)
            self._losses.add(self.iter, loss)
            LOG.info("Iteration %d, loss = %s", self.iter, number(self._losses.value))
        if plan.test_interval and self.iter % plan.test_interval == 0:
            self.test_all()
        LOG.info("Optimization Done.")

    def step(self, iterations: int, progress: Progress | None = None) -> None:
        """Train ``iterations`` more iterations; test and write snapshots when they are due."""
        plan = self.plan
        last = self.iter + iterations
        self._lap = Lap(self.iter)
        while self.iter < last:
            testing = plan.test_interval and self.iter % plan.test_interval == 0
            if testing and (self.iter > 0 or plan.test_initialization):
                self.test_all()
                if self._stopped:
                    return
            self.trials.start()
            self.loss = self._iterate()
            with self.events.during(Activity.BETWEEN):
                if self.trials.end():
                    self._seen.start(self.iter + 1)
                self.iter += 1
                if progress:
                    progress.advance(self.loss)
            action = self._status.action
            if (plan.snapshot and self.iter % plan.snapshot == 0) or action is Action.SNAPSHOT:
                self.snapshot()
            if action is Action.STOP:
                self._stopped = True
                return

    def settle(self) -> None:
        """Train until nothing is left to try out: memory layout, inner layer and chunks of gradients."""
        while not self.trials.settled:
            self.step(1)

    def _iterate(self) -> float:
        """Train one iteration; returns its loss."""
        lr_policy.log_step(self.plan.optim, self.iter)
        self._debug = self._displays and self.plan.debug_info
        return self.executor.train(self.iter, self._update, self._debug)

    @property
    def _displays(self) -> bool:
        """Whether this iteration is shown."""
        return bool(self.plan.display) and self.iter % self.plan.display == 0

    def _update(self, loss: float) -> None:
        """Show the iteration if it is due, and update the parameters; in this order, as Caffe does."""
        self._losses.add(self.iter, loss)
        if self._displays:
            with self.events.during(Activity.DISPLAY):
                self._show(lr_policy.learning_rate(self.plan.optim, self.iter))
        self.before_update()
        of = self.executor.applied(self.iter)
        if of is not None:
            self.rule.update(lr_policy.learning_rate(self.plan.optim, of), of)

    def _show(self, rate: float) -> None:
        LOG.info("%s", self._lap.line(self.iter, self.plan.display, self._losses.value))
        for line in output_lines(self.net.graph, self.train.outputs.whole(self.train.operator.values), "Train"):
            LOG.info("%s", line)
        LOG.info("Iteration %d, lr = %s", self.iter, number(rate))

    def test_all(self) -> None:
        """Test every test net and log its scores."""
        self.parallel.before_test(self.net, self.exchange)
        for index in range(len(self.tests)):
            if not self._stopped:
                self.test(index)

    def test(self, index: int) -> Scores | None:
        """Test one test net and log its scores; ``None``: a signal has stopped it."""
        with self.events.during(Activity.TEST):
            return self._tester.test(index, self.iter)

    def _interrupted(self) -> bool:
        """Serve the signals that came during a test; whether to stop."""
        while (action := self._status.agree()) is not Action.NONE:
            if action is Action.SNAPSHOT:
                self.snapshot()
            else:
                self._stopped = True
        return self._stopped
