"""Runtime: a run on the ranks and devices that there are. ``bind`` makes it of a plan and a state."""

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

    ``bind`` makes it. When it is closed, another can be bound in the same process, to other ranks.

    Attributes:
        plan: the run.
        group: all ranks of the run, and those of them that train: ``world``.
        heals: whether the run continues when a rank is lost; see ``healing``.
        parallel: how the run is spread over its ranks.
        nets: the training net and the test nets.
        exchange: sums gradients over the ranks.
        updater: updates the training net.
        tuner: tries out settings in the first iterations.
        checkpoint: writes and reads snapshots.
        recovery: what of the state the others can have when a rank is lost.
        status: the signals and the loss that all ranks agree on.
        passes: runs the training net.
        run_state: becomes a TrainState, and is replaced by one.
        flight_log: this rank's; ``None`` without a flight recorder.
        cleanup: closes all that is open.
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
        """The seed of everything random."""
        return self.run_state.seed

    @property
    def progress(self) -> RunProgress:
        """The progress of the run."""
        return self.run_state.progress

    @property
    def iteration(self) -> int:
        """The number of iterations done; may be set."""
        return self.progress.iteration

    @iteration.setter
    def iteration(self, iteration: int) -> None:
        self.progress.iteration = iteration

    def close(self, failed: bool = False) -> None:
        """Close all data sources, and free threads, shared memory and communicators.

        A collective call, unless something ``failed``. What is closed already stays so.
        """
        self.cleanup.close(failed)

    def record(self, error: BaseException) -> None:
        """Write what this rank's flight recorder has from before ``error``, if there are other ranks."""
        if self.flight_log:
            self.flight_log.failed(error)

    # Iterations

    def iterate(self) -> float:
        """Train one iteration; return its loss."""
        return float(self.train())

    def train(self, debug: bool = False, observed: bool = False) -> Loss:
        """Train one iteration; return its loss, which a GPU may not have computed yet.

        Args:
            debug: log every blob and diff, in Caffe's lines.
            observed: blobs, diffs, and what was subtracted from each parameter can be observed afterwards, if the run
                has an observer.
        """
        progress, observed = self.progress, observed and self.passes.has_observer
        progress.is_settled = self.tuner.settled
        self.recovery.come_to(progress.iteration)
        if not observed:
            self.tuner.start()
        progress.last_loss = self.passes.train(progress.iteration, debug, observed)
        if not observed:
            with self.events.during(Activity.BETWEEN):
                self.tuner.end(progress.iteration + 1)
        progress.iteration += 1
        self.recovery.copy()
        return progress.last_loss

    def run(self, iterations: int) -> None:
        """Train so many iterations."""
        for _ in range(iterations):
            self.train()

    def read_losses(self) -> None:
        """Read the losses that a GPU has computed meanwhile, and what it has noted of its data.

        Raises:
            DataError: a label was no class.
            DivergedError: one is not finite, and ``on_nan`` is not GO_ON.
        """
        self.passes.check()
        self.updater.losses.settle()

    def settle(self) -> None:
        """Train until no trials are left: memory layout, inner layer and chunks of gradients."""
        while not self.tuner.settled:
            self.iterate()

    def warm_up(self) -> None:
        """Train until all is ready and tried out, and then undo these iterations."""
        before = self.state().copy()
        self.iterate()
        self.settle()
        self.load(before)

    def apply_update(self) -> None:
        """Update all parameters from their gradients, which the rule then keeps; this ends an iteration."""
        updater = self.updater
        updater.rule.keep_updates(True)
        updater.rule.update(updater.rates(self.iteration), self.iteration)
        self.iteration += 1
        self.passes.executor.forget()

    def set_lr_schedule(self, optim: OptimSpec) -> None:
        """Take learning rates from another spec from now on, of the same rule."""
        self.plan, self.updater.rates.spec = replace(self.plan, optim=optim), optim

    # Tests

    def forward_only(self, debug: bool = False) -> float:
        """Run the training net forward by the weights of the last update; return the loss of all ranks. Collective."""
        return self.nets.train.outputs.total(self.passes.forward_only(self.iteration - 1, debug))

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Give all ranks equal nets inside, since a test is divided among them; a collective call."""
        self.read_losses()
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
        """Give the nets the average of the weights inside; a collective call, inside of ``testing``."""
        with self.updater.rule.averaged():
            self.parallel.parameters.before_test(self.net, self.exchange)
            yield

    # State

    def state(self) -> TrainState:
        """Return this rank's part of the state; it shares memory with the nets."""
        return self.run_state.current()

    def records(self) -> list[PartRecord]:
        """Return what this rank knows of the run's state, without communication."""
        return self.recovery.records()

    def load(self, state: TrainState) -> None:
        """Continue from this rank's part of a state.

        Of what the state does not name, moments are 0, averages are its weights, data begin at their first sample,
        sequences begin at 0, and an exchange starts anew.
        What was tuned meanwhile stays tuned.

        Raises:
            UserError: the state is of another seed, by which nets draw from when they are made: ``bind`` takes it.
        """
        self.run_state.load(state)
        self.passes.executor.forget()

    def snapshot(self, name: str = "") -> str:
        """Write weights and solver state under ``snapshot_prefix``; return the state's path. A collective call.

        Args:
            name: behind the prefix; by default ``iter_`` and how many iterations are done.

        Raises:
            WriteError: a file could not be written; what stood there before is intact. All ranks raise it.
            DivergedError: weights are not finite, and ``on_nan`` is not GO_ON.
        """
        self.read_losses()
        self.checkpoint.settle(self.iteration)
        with self.exchange.whole():
            path = self.checkpoint.write(self.state(), name, self.has_average)
        self.checkpoint.forget_in_memory()
        return path

    def snapshot_in_memory(self) -> None:
        """Write a snapshot in the memory of the first rank's host, if that is due; a collective call.

        Nothing is written while trials are left.

        Raises:
            DivergedError: see ``snapshot``.
        """
        if self.checkpoint.is_due_in_memory(self.iteration) and self.tuner.settled:
            with self.events.during(Activity.SNAPSHOT):
                self.read_losses()
                self.checkpoint.settle(self.iteration)
                with self.exchange.whole():
                    self.checkpoint.write_in_memory(self.state())

    def restore(self, path: str) -> None:
        """Continue from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
        """
        self.load(self.checkpoint.read(path, self.state()))
        self.run_state.share_weights()
