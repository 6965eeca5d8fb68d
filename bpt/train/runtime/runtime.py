"""Runtime: a run on the ranks and devices that there are. ``bind`` makes it of a plan and a state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from secrets import token_hex

import torch

from bpt.base.errors import UserError
from bpt.base.signals import SignalActions
from bpt.base.violation import refuse
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.run_plan import RunPlan
from bpt.engine.executor import Executor
from bpt.engine.operator import Operator
from bpt.engine.optim.averages import num_averaged
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.staging import Staging
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.dynamic import Dynamic
from bpt.parallel.balance.dynamic_balancer import DynamicLoadBalancer
from bpt.parallel.balance.load_balance import division_of
from bpt.parallel.cgdp.tuner import Chunks
from bpt.parallel.exchange import Exchange
from bpt.parallel.exchange.replicas import TrainingProgress
from bpt.system.comm.agreement import check_same, outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.system.events.event import Activity
from bpt.train import state as snapshot
from bpt.train.rules.violations import violations_here, violations_in_step
from bpt.train.runtime import starting_point
from bpt.train.runtime.autotuner import Autotuner
from bpt.train.runtime.built_nets import Builder, Built, MakeOperator
from bpt.train.runtime.checkpoint import Checkpoint
from bpt.train.runtime.cleanup import CleanupStack, Closeable
from bpt.train.runtime.flight_log import FlightLog
from bpt.train.runtime.half_precision import HalfLayers, precision_here
from bpt.train.runtime.parallel import ReplicaShare
from bpt.train.runtime.parallel_setup import setup_parallelism
from bpt.train.runtime.rank_group import RankGroup, heartbeat_of
from bpt.train.runtime.recovery import PartRecord, RecoveryPoint, StateCopies
from bpt.train.runtime.run_facts import check_content, data_facts, facts_of
from bpt.train.runtime.test_wraparound import wraparound_of_test_set
from bpt.train.runtime.tuned_settings import Inner, MemoryFormatSetting, TunedSetting
from bpt.train.runtime.updater import Updater
from bpt.train.state.best import Best
from bpt.train.state.train_state import TrainState, blob_of

LOG = logging.getLogger("bpt")


def bind(
    plan: RunPlan,
    state: TrainState | None = None,
    world: Communicator | None = None,
    device: torch.device = CPU,
    *,
    signals: SignalActions | None = None,
    resume: str = "",
    observer: MakeOperator | None = None,
    make_operator: MakeOperator | None = None,
    batch_factor: int | None = None,
    staging: Staging | None = None,
    crew: RankGroup | None = None,
    portion: ReplicaShare | None = None,
    log: logging.Logger = LOG,
) -> Runtime:
    """Return the run that ``plan`` describes, on the ranks of ``world``; a collective call.

    Args:
        state: whole, on all ranks: what the run goes on from; by default it starts anew, by the net's fillers.
        world: the ranks that train together; by default this one is alone.
        device: where to compute.
        signals: where signals are noted; ``None``: signals keep their usual effect.
        resume: a solver state to go on from; "auto" takes the newest good one under ``snapshot_prefix``, if there is
            any.
        observer: makes what runs the training net in iterations whose blobs and diffs are looked at, and the test nets.
        make_operator: makes what runs a net, instead of the usual one for ``parallel_param``.
        batch_factor: a batch has so many times the samples that the net's text says; see Parallel.
        staging: how the nets are cut into stages and batches into micro-batches; by default as the plan is placed.
        crew: whose ``world`` it is; by default there are no others.
        portion: of each batch, that this process trains, which is alone; by default all of it.
        log: is told what is bound.

    Raises:
        UserError: the plan cannot be run; it says where and why.
        FileError: the state to resume is missing, damaged, of another kind, or of another net.
    """
    crew = crew or RankGroup.all_of(world or SerialCommunicator())
    runtime = Runtime(plan if state is None else plan.with_seed(state.seed), crew, device, log)
    try:
        graphs = runtime.arrange(resume, batch_factor, staging, portion)
        runtime.build(graphs, observer, make_operator, filled=state is None)
        runtime.join(signals)
        runtime.start_from(state)
    except BaseException:
        runtime.close(failed=True)
        raise
    return runtime


class Runtime(Closeable):
    """Communicators, devices, nets, operators and threads of a run, which trains iteration by iteration.

    Made by ``bind``. When it is closed, another can be bound in the same process, to other ranks.

    Attributes:
        crew: all ranks of the run, and those of them that train: ``world``.
        iteration: iterations done; may be set.
        loss: of the last iteration.
        seed: of everything random.
        train, tests: the nets, each with what runs it.
        observed: runs the training net in iterations that are looked at; ``None``: none are.
        ran: the operator that has run the training net last: its values and diffs are there to see.
        updater: updates the training net.
        checkpoint: writes and reads its state.
        recovery: what of it the others can have when a rank is lost.
        best, tested: see TrainState; may be set.
        heals: whether the run goes on when a rank is lost; see ``healing``.
        before_passes: called when an iteration begins.
    """

    best: Best | None = None
    tested: int = -1

    def __init__(self, plan: RunPlan, crew: RankGroup, device: torch.device, log: logging.Logger) -> None:
        self.plan = plan
        self.crew = crew
        self.world = crew.world
        self.device = device
        self.iteration = 0
        self.loss = 0.0
        self.before_passes: list[Callable[[], object]] = []
        self._log = log
        self._ending = CleanupStack()
        self._ending.add(crew.close)

    def arrange(
        self, resume: str, batch_factor: int | None, staging: Staging | None, portion: ReplicaShare | None
    ) -> list[LayerGraph]:
        """Refuse what cannot run, and decide which rank has what; return the graphs, the training net's first.

        This is a collective call.
        """
        plan, world = self.plan, self.world
        refuse(plan, violations_in_step(plan))
        refuse(plan, violations_here(plan) if world.rank == 0 else ())
        outcome_of_first(world, None if world.rank else partial(starting_point.check_files, plan, resume))
        graphs = [build_graph_of(net) for net in (plan.train, *plan.tests)]  # what is wrong in them shows now
        graph, *test_graphs = graphs
        snapshot.check_names(plan, graph)
        check_same(self.crew.everyone, facts_of(plan, *graphs))
        self.parallel = setup_parallelism(
            plan, graph, world, self.device, batch_factor, test_graphs, staging, self._log, portion
        )
        self._ending.add(self.parallel.close)
        self._watch()
        start = None if world.rank else partial(starting_point.start_of, plan, resume)
        self._resume, self.seed = outcome_of_first(world, start)
        return graphs

    def build(
        self, graphs: list[LayerGraph], observer: MakeOperator | None, make_operator: MakeOperator | None, filled: bool
    ) -> None:
        """Build the nets of these graphs, and what runs, updates and saves them; a collective call."""
        plan, world, device, log = self.plan, self.world, self.device, self._log
        graph, *test_graphs = graphs
        precision = precision_here(plan, world, device, log)
        builder = Builder(device, self.seed, precision, self.parallel, plan.debug_info, make_operator, log)
        self.train = self._ended(builder.build("training net from", plan.train, graph, filled=filled))
        self.ran = self.train.operator
        if not graph.losses:
            log.warning("The training net has no loss: nothing will be learned")
        shared = self.net.values_by_name()
        self.tests: list[Built] = [
            self._ended(builder.build(f"test net (#{index}) specified by", test, test_graph, shared, observer))
            for index, (test, test_graph) in enumerate(zip(plan.tests, test_graphs, strict=True))
        ]
        for index, test in enumerate(self.tests):
            again, remedy = wraparound_of_test_set(test.operator.net, f"test net (#{index})", plan.test_iter[index])
            if again:
                log.warning("%s; %s", again, remedy)
        self.nets = {"train": self.net} | {f"test#{index}": test.operator.net for index, test in enumerate(self.tests)}
        if self.parallel.has_outputs:
            check_same(self.parallel.samples, data_facts(self.nets))
        check_content(world, self.nets)
        for path in snapshot.weight_files(plan.weights, plan.path):
            log.info("Finetuning from %s", path)
            for net in self.nets.values():  # a test net may have layers of its own
                snapshot.load_weights(net, path)
        self.updater = Updater(plan, self.net, self.parallel, log)
        operators = [built.operator for built in (self.train, *self.tests)]
        self._half = HalfLayers(list(self.nets.values()), precision, world, device)
        self._tuned = MemoryFormatSetting(plan.engine, operators, world), Inner(plan.parallel_param, operators, world)
        run = world.bcast(token_hex(8))
        self.checkpoint = Checkpoint(plan, self.net, self.updater.rule, self.parallel, self._tuned, run)
        self.observed: Operator | None = observer(self.net, device) if observer else None
        if self.observed is not None:
            self._ending.add_own(self.observed.close)
            self.updater.on_loss.append(self._divide_diffs)

    def _ended(self, built: Built) -> Built:
        self._ending.add_own(built.operator.close)
        return built

    def _watch(self) -> None:
        """Watch for ranks that stand still from now on; a collective call of the group."""
        self.heals = self.crew.everyone.tolerant and self.plan.parallel_param.fault_param.heals
        self.flight_log = FlightLog.of(self.world, self.plan.snapshot_prefix)
        lane = self.parallel.grid.stage
        if beat := heartbeat_of(self.plan, self.crew, self.flight_log, lane, self._has_settled, self.heals):
            self._ending.add(beat.close)

    def _has_settled(self) -> bool:
        """Return whether no trials are left; ``False`` before the run is bound."""
        return hasattr(self, "tuner") and self.tuner.settled

    def join(self, signals: SignalActions | None) -> None:
        """Create what training with the other ranks needs; a collective call."""
        parallel, operator = self.parallel, self.train.operator
        self.exchange: Exchange = self._exchange(operator)
        self.events = self.world.events
        for net in self.nets.values():
            for layer in net.data_layers().values():
                if isinstance(layer, PrefetchingDataLayer):
                    layer.report_to(self.events)
        self.chunks = Chunks(parallel, operator, self.exchange, self.plan, fixed=self.plan.debug_info)
        self._ending.add_own(self.chunks.close)
        self.tuner = Autotuner(self._tuned, self.chunks, self.device)
        self.following: DynamicLoadBalancer | None = None
        if parallel.samples.size > 1 and isinstance(parallel.balance, Dynamic):
            division = division_of(self.plan, self.net.graph, parallel.grid, parallel.staging)
            self.following = DynamicLoadBalancer(parallel, self.nets, division, self.device)
        fault = self.plan.parallel_param.fault_param
        copies = StateCopies(self.world.Dup(), fault.copy_interval) if self.heals and fault.copies else None
        if copies:
            self._ending.add(copies.close)
        self.recovery = RecoveryPoint(self.net, self.exchange, self.state, self._progress, self.heals, copies)
        self.updater.rule.before_change = self.recovery.leave
        self.status = parallel.status(signals)
        self._ending.add(self.status.close)
        self.updater.join(self.exchange, self.status)
        passes = self.plan.optim.iter_size
        self.executor = Executor(operator, self.exchange, self.status, self.events, passes)
        self._observing = self.executor
        if self.observed is not None:
            exchange = self._exchange(self.observed)
            self._observing = Executor(self.observed, exchange, self.status, self.events, passes)

    def start_from(self, state: TrainState | None) -> None:
        """Start from a whole state, else from the one to resume, else anew; a collective call."""
        if state is not None:
            self.load(state.divided(self.net.graph, self.net.part))
            if self.exchange.replicas_diverged:  # what each rank that is left knows of its replica
                self.exchange.average()
        elif self._resume:
            self.load(self.checkpoint.read(self._resume, self.state()))
        self._half.settle()
        self._share_weights()
        self.recovery.come_to(self.iteration)
        self.recovery.copy()

    def _exchange(self, operator: Operator) -> Exchange:
        exchange = self.parallel.exchange(self.net, operator.segments, self.device)
        exchange.follow(TrainingProgress(lambda: self.iteration, self.updater.rule.optimizer_state))
        self._ending.add(exchange.close)
        return exchange

    @property
    def graph(self) -> LayerGraph:
        """The graph of the training net."""
        return self.net.graph

    @property
    def net(self) -> Net:
        """The training net."""
        return self.train.operator.net

    def close(self, failed: bool = False) -> None:
        """Close all data sources, and free threads, shared memory and communicators.

        A collective call, unless something ``failed``. What is closed already stays so.
        """
        self._ending.close(failed)

    def record(self, error: BaseException) -> None:
        """Write what this rank's flight recorder has from before ``error``, if there are other ranks."""
        if self.flight_log:
            self.flight_log.failed(error)

    # Iterations

    def iterate(self, debug: bool = False, observed: bool = False) -> float:
        """Train one iteration; return its loss.

        Args:
            debug: log every blob and diff, in Caffe's lines.
            observed: all blobs and diffs, and what was subtracted from each parameter, can be looked at afterwards.
        """
        self._came_from = starting_point.positions_of({"train": self.net})
        self.recovery.come_to(self.iteration)
        for call in self.before_passes:
            call()
        observed = observed and self.observed is not None
        self.updater.begin(self.iteration, keeps_updates=observed)
        if observed:
            self.loss = self._train(self._observing, debug)
        else:
            self._take_over_inputs()
            self.tuner.start()
            self.loss = self._train(self.executor, debug)
            with self.events.during(Activity.BETWEEN):
                self._end_of_iteration()
        self.iteration += 1
        self.recovery.copy()
        return self.loss

    def _end_of_iteration(self) -> None:
        """Use the measurements of the iteration; a collective call."""
        tuned = self.tuner.settled
        self.tuner.end()
        if self.following and tuned:
            self.following.end(self.iteration + 1)

    def apply_update(self) -> None:
        """Update all parameters from their gradients, which the rule then keeps; this ends an iteration."""
        updater = self.updater
        updater.rule.keep_updates(True)
        updater.rule.update(updater.rates(self.iteration), self.iteration)
        self.iteration += 1
        self.executor.forget()

    def set_lr_schedule(self, optim: OptimSpec) -> None:
        """Take learning rates from another spec from now on, of the same rule."""
        self.plan, self.updater.rates.spec = replace(self.plan, optim=optim), optim

    def run(self, iterations: int) -> None:
        """Train so many iterations."""
        for _ in range(iterations):
            self.iterate()

    def _train(self, executor: Executor, debug: bool) -> float:
        self.ran = executor.operator
        updater, iteration = self.updater, self.iteration
        early = None if debug else updater.early(executor.operator, iteration)
        return executor.train(iteration, partial(self._update, executor), debug, updater.scale.begin, early)

    def _update(self, executor: Executor, loss: float) -> None:
        self.updater.update(self.iteration, loss, executor.applied(), self.replay_forward)
        self.recovery.come_to(self.iteration + 1)

    def _divide_diffs(self, loss: float) -> None:
        """Divide the diffs by the loss scale for observers, which want those of the loss itself."""
        if self.ran is self.observed:
            self.ran.divide_diffs()

    def _take_over_inputs(self) -> None:
        """Give all operators of the net the blobs that a user has set for Input layers."""
        if self.observed is not None:
            seen = self.observed.values
            edges = (edge for node in self.net.graph.nodes if node.type == "Input" for edge in node.tops)
            self.train.operator.feed({edge: seen[edge] for edge in edges if edge in seen})

    def replay_forward(self) -> None:
        """Run the training net forward, as the current iteration did."""
        starting_point.set_positions({"train": self.net}, self._came_from)
        for number in range(self.plan.optim.iter_size):
            self._observing.evaluate(self.iteration, number)

    def look(self, debug: bool = False) -> float:
        """Run the training net forward by the weights of the last update; return the loss of all ranks. Collective."""
        executor = self._observing
        self.ran = executor.operator
        own = executor.evaluate(self.iteration - 1, self.plan.optim.iter_size - 1, debug=debug)
        return self.train.outputs.total(own)

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

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Give all ranks equal nets inside, since a test is divided among them; a collective call."""
        with self.exchange.whole():
            self._come_together()
            yield

    def _come_together(self) -> None:
        self.parallel.before_test(self.net, self.exchange)

    # State

    @property
    def _all_tuned(self) -> tuple[HalfLayers | TunedSetting | Chunks | DynamicLoadBalancer, ...]:
        """All settings that are found by measuring and kept in states."""
        return (self._half, *self._tuned, self.chunks, *([self.following] if self.following else []))

    def state(self) -> TrainState:
        """Return this rank's part of the state; it shares memory with the nets."""
        graph, held = self.net.graph, self.net.local_params
        history, count = self.updater.rule.history, len(held)
        return replace(
            self._progress(self.iteration),
            weights={blob_of(graph, param): self.net.value(param).detach() for param in held},
            moments={blob_of(graph, param): tuple(history[place::count]) for place, param in enumerate(held)},
            tuned={tuned.name: settled for tuned in self._all_tuned if (settled := tuned.state())},
            extras={self._exchange_name: own} if (own := self.exchange.state()) else {},
        )

    def _progress(self, iteration: int) -> TrainState:
        """Return the progress part of the state after so many iterations, without parameters and tuned settings."""
        updater = self.updater
        return TrainState(
            iteration,
            self.seed,
            weights={},
            positions=starting_point.positions_of(self.nets),
            losses=updater.losses.history,
            loss_scale=updater.scale.state(),
            plateau=updater.rates.state(),
            best=self.best,
            tested=self.tested,
            run=self.checkpoint.run,
        )

    @property
    def _exchange_name(self) -> str:
        """The name of the exchange's memory in a state; a codec's memory is the same with any exchange."""
        return type(self.exchange.codec or self.exchange).__name__

    def records(self) -> list[PartRecord]:
        """Return what this rank knows of the run's state, without communication."""
        return self.recovery.records()

    def load(self, state: TrainState) -> None:
        """Continue from this rank's part of a state.

        Of what the state does not name, moments are 0, averages are its weights, data begin at their first sample,
        sequences go on from 0, and an exchange starts anew.
        What was tuned meanwhile stays tuned.

        Raises:
            UserError: the state is of another seed, by which nets draw from when they are made: ``bind`` takes it.
        """
        if state.seed != self.seed:
            raise UserError(f"the state is of random_seed {state.seed}, this run of {self.seed}: bind another to it")
        self.updater.load(state)
        starting_point.set_positions(self.nets, state.positions)
        self.net.hidden_states = ((),) * len(self.graph)
        for tuned in self._all_tuned:
            if tuned.name in state.tuned:
                tuned.load(state.tuned[tuned.name])
        self.best, self.tested = state.best, state.tested
        self.checkpoint.go_on(state)
        self.iteration = state.iteration
        self.exchange.load(state.extras.get(self._exchange_name, {}))
        self.executor.forget()

    @property
    def has_average(self) -> bool:
        """Whether there is an average of the weights."""
        optim = self.plan.optim
        return optim.averages and num_averaged(optim.average_param, self.iteration) > 0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the nets the average of the weights inside; a collective call, inside of ``testing``."""
        with self.updater.rule.averaged():
            self._come_together()
            yield

    def snapshot(self, name: str = "") -> str:
        """Write weights and solver state under ``snapshot_prefix``; return the state's path. A collective call.

        Args:
            name: behind the prefix; by default ``iter_`` and how many iterations are done.

        Raises:
            WriteError: a file could not be written; what stood there before is intact. All ranks raise it.
            DivergedError: weights are not finite, and ``on_nan`` is not GO_ON.
        """
        self.checkpoint.settle(self.iteration)
        with self.exchange.whole():
            path = self.checkpoint.write(self.state(), name, self.has_average)
        self.checkpoint.forget_in_memory()
        return path

    def snapshot_in_memory(self) -> None:
        """Write a snapshot in the memory of the first rank's host, if that is due; a collective call.

        Not while it is tried out how to compute.

        Raises:
            DivergedError: see ``snapshot``.
        """
        if self.checkpoint.is_due_in_memory(self.iteration) and self.tuner.settled:
            with self.events.during(Activity.SNAPSHOT):
                self.checkpoint.settle(self.iteration)
                with self.exchange.whole():
                    self.checkpoint.write_in_memory(self.state())

    def restore(self, path: str) -> None:
        """Continue from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
        """
        self.load(self.checkpoint.read(path, self.state()))
        self._share_weights()

    def _share_weights(self) -> None:
        """Give all ranks the first one's weights, since fillers and files may differ between machines."""
        if self.exchange.replicas_diverged:
            return
        for net in self.nets.values():
            self.parallel.agree(net, everything=True)
