"""Runtime: a run on the available ranks and devices, which ``bind`` makes from a plan and a state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.run_plan import RunPlan
from bpt.engine.late_loss import Loss
from bpt.engine.optim.averages import num_averaged
from bpt.engine.status import Status
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.net import Net
from bpt.parallel.exchange import Exchange
from bpt.system.comm.base import Communicator
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Activity
from bpt.train.runtime.autotuner import Autotuner
from bpt.train.runtime.averaged_weights import averaged
from bpt.train.runtime.built_nets import RunNets
from bpt.train.runtime.checkpoint import Checkpoint
from bpt.train.runtime.cleanup import CleanupStack, Closeable
from bpt.train.runtime.flight_log import FlightLog
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.passes import TrainingPasses
from bpt.train.runtime.rank_group import RankGroup
from bpt.train.runtime.recovery import PartRecord, RecoveryPoint
from bpt.train.runtime.run_state import RunProgress, RunState
from bpt.train.runtime.updater import Updater
from bpt.train.state.train_state import TrainState


@dataclass(eq=False)
class Runtime(Closeable):
    """Communicators, devices, nets, operators and threads of a run, which trains iteration by iteration.

    ``bind`` makes it. After it is closed, another one can be bound in the same process, to other ranks.

    Attributes:
        plan: the run.
        group: all ranks of the run, and those of them that train: ``world``.
        heals: whether the run continues when a rank is lost (see ``healing``).
        parallel: the parallelisation of the run.
        nets: the training net and the test nets.
        exchange: sums gradients over the ranks.
        updater: updates the training net.
        tuner: tries out settings in the first iterations.
        checkpoint: writes and reads snapshots.
        recovery: the part of the state that this rank can provide when a rank is lost.
        status: the signals and the loss that all ranks share.
        passes: runs the training net.
        run_state: this rank's part of the state.
        flight_log: the log of this rank's flight recorder; ``None`` without one.
        cleanup: closes all open resources.
    """

    plan: RunPlan
    group: RankGroup
    heals: bool
    parallel: Parallel
    nets: RunNets
    exchange: Exchange
    updater: Updater
    tuner: Autotuner
    checkpoint: Checkpoint
    recovery: RecoveryPoint
    status: Status
    passes: TrainingPasses
    run_state: RunState
    flight_log: FlightLog | None
    cleanup: CleanupStack

    @property
    def world(self) -> Communicator:
        """The ranks that train."""
        return self.group.world

    @property
    def events(self) -> EventBus:
        """The events of this rank."""
        return self.world.events

    @property
    def net(self) -> Net:
        """The training net."""
        return self.nets.net

    @property
    def graph(self) -> LayerGraph:
        """The graph of the training net."""
        return self.net.graph

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        return self.run_state.seed

    @property
    def progress(self) -> RunProgress:
        """The progress of the run."""
        return self.run_state.progress

    @property
    def iteration(self) -> int:
        """The number of completed iterations, which can be set."""
        return self.progress.iteration

    @iteration.setter
    def iteration(self, iteration: int) -> None:
        self.progress.iteration = iteration

    def close(self, failed: bool = False) -> None:
        """Close all data sources, and free threads, shared memory and communicators.

        This is a collective call, unless something ``failed``. A second call has no effect.
        """
        self.cleanup.close(failed)

    def record(self, error: BaseException) -> None:
        """Write the content of this rank's flight recorder before ``error``, if there are other ranks."""
        if self.flight_log:
            self.flight_log.failed(error)

    # Iterations

    def iterate(self) -> float:
        """Train one iteration; return its loss."""
        return float(self.train())

    def train(self, debug: bool = False, observed: bool = False) -> Loss:
        """Train one iteration; return its loss, which a GPU may not have computed yet.

        Args:
            debug: whether to log every blob and diff, in Caffe's lines.
            observed: whether blobs, diffs and the subtracted updates must be readable afterwards, if the run has an
                observer.
        """
        progress, observed = self.progress, observed and self.passes.has_observer
        progress.is_settled = self.tuner.settled
        self.recovery.come_to(progress.iteration)
        if not observed:
            self.tuner.start()
        progress.last_loss = self.passes.train(progress.iteration, debug, observed)
        if observed or not self.tuner.settled:
            self.passes.complete_weights()
        if not observed:
            with self.events.during(Activity.BETWEEN):
                self.tuner.end(progress.iteration + 1)
        progress.iteration += 1
        self.recovery.copy()
        return progress.last_loss

    def run(self, iterations: int) -> None:
        """Train ``iterations`` iterations."""
        for _ in range(iterations):
            self.train()

    def read_losses(self) -> None:
        """Read the losses that a GPU has computed meanwhile, and the errors in data that it has detected.

        Raises:
            DataError: a label is not a class.
            DivergedError: a loss is not finite, and ``on_nan`` is not GO_ON.
        """
        self.passes.check()
        self.updater.losses.settle()

    def settle(self) -> None:
        """Train until the trials of memory layout, inner engine and chunks of gradients are finished."""
        while not self.tuner.settled:
            self.iterate()

    def warm_up(self) -> None:
        """Train until all trials are finished, and then undo these iterations."""
        before = self.state().copy()
        self.iterate()
        self.settle()
        self.load(before)

    def apply_update(self) -> None:
        """Update all parameters from their gradients, and end the iteration; the rule keeps the updates."""
        updater = self.updater
        updater.rule.keep_updates(True)
        updater.rule.update(updater.rates(self.iteration), self.iteration)
        self.iteration += 1
        self.passes.executor.forget()

    def set_lr_schedule(self, optim: OptimSpec) -> None:
        """Replace the schedule of learning rates by that of ``optim``, which has the same rule."""
        self.plan, self.updater.rates.spec = replace(self.plan, optim=optim), optim

    # Tests

    def forward_only(self, debug: bool = False) -> float:
        """Run the training net forward with the current weights; return the loss of all ranks. A collective call."""
        self.passes.complete_weights()
        return self.nets.train.outputs.total(self.passes.forward_only(self.iteration - 1, debug))

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Make the nets of all ranks equal in the block, because a test is divided among them; a collective call."""
        self.read_losses()
        self.passes.complete_weights()
        with self.exchange.whole():
            self.parallel.parameters.before_test(self.net, self.exchange)
            yield

    @property
    def has_average(self) -> bool:
        """Whether there is an average of the weights."""
        optim = self.plan.optim
        return optim.averages and num_averaged(optim.average_param, self.iteration) > 0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Replace the nets' weights by their average in the block; a collective call, inside of ``testing``."""
        with averaged(self.updater.rule, self.exchange):
            self.parallel.parameters.before_test(self.net, self.exchange)
            yield

    # State

    def state(self) -> TrainState:
        """Return this rank's part of the state; it shares memory with the nets.

        Under ``update: SHARDED`` the moments are those of this rank's slices.
        """
        self.passes.complete_weights()
        return self.run_state.current()

    def records(self) -> list[PartRecord]:
        """Return the records that this rank has of the run's state, without communication."""
        return self.recovery.records()

    def load(self, state: TrainState) -> None:
        """Continue from this rank's part of a state.

        If the state lacks something, moments are 0, averages are its weights, data begin at their first sample,
        sequences begin at 0, and an exchange starts anew. Choices that were tuned meanwhile stay.

        Raises:
            UserError: the state has another seed, which must be set when nets are made: give the state to ``bind``.
        """
        self.passes.complete_weights()
        self.run_state.load(state)
        self.passes.executor.forget()

    def snapshot(self, name: str = "") -> str:
        """Write weights and solver state under ``snapshot_prefix``; return the state's path. A collective call.

        Args:
            name: the name after the prefix; by default ``iter_`` and the number of iterations.

        Raises:
            WriteError: a file could not be written; the previous file is intact. All ranks raise it.
            DivergedError: weights are not finite, and ``on_nan`` is not GO_ON.
        """
        self.read_losses()
        self.passes.complete_weights()
        self.checkpoint.settle(self.iteration)
        with self.exchange.whole():
            path = self.checkpoint.write(self.state(), name, self.has_average)
        self.checkpoint.forget_in_memory()
        return path

    def snapshot_in_memory(self) -> None:
        """Write a snapshot in the memory of the first rank's host if one is due; a collective call.

        It writes nothing before all trials are finished.

        Raises:
            DivergedError: as in ``snapshot``.
        """
        if self.checkpoint.is_due_in_memory(self.iteration) and self.tuner.settled:
            with self.events.during(Activity.SNAPSHOT):
                self.read_losses()
                self.passes.complete_weights()
                self.checkpoint.settle(self.iteration)
                with self.exchange.whole():
                    self.checkpoint.write_in_memory(self.state())

    def restore(self, path: str) -> None:
        """Continue from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; the message names it.
        """
        self.load(self.checkpoint.read(path, self.state()))
        self.run_state.share_weights()
