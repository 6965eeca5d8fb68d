"""Runtime: a run on the ranks and devices that there are. ``bind`` makes it of a plan and a state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from secrets import token_hex

import torch

from bpt import state as snapshot
from bpt.balance.dynamic import Dynamic
from bpt.comm.agreement import check_same, outcome_of_first
from bpt.comm.base import Communicator
from bpt.comm.serial import SerialCommunicator
from bpt.device import CPU
from bpt.errors import UserError
from bpt.events.event import Activity
from bpt.exchange import Exchange
from bpt.exchange.replicas import Followed
from bpt.execute.executor import Executor
from bpt.execute.operator import SegmentOperator
from bpt.graph.layer_graph import LayerGraph
from bpt.layers.prefetching import PrefetchingDataLayer
from bpt.net import Net
from bpt.net_graph import build_graph_of
from bpt.optim.averages import taken
from bpt.optim.optim_spec import OptimSpec
from bpt.plan.spec import RunPlan
from bpt.plan.staging import Staging
from bpt.plan.violations import violations_here, violations_in_step
from bpt.runtime import starting_point
from bpt.runtime.agreement import check_content, data_facts, facts_of
from bpt.runtime.autotuner import Autotuner
from bpt.runtime.balancing import division_of
from bpt.runtime.built_nets import Builder, Built, MakeOperator
from bpt.runtime.checkpoint import Checkpoint
from bpt.runtime.chunks.tuner import Chunks
from bpt.runtime.crew import Crew, heartbeat_of
from bpt.runtime.ending import Closing, Ending
from bpt.runtime.flight_log import FlightLog
from bpt.runtime.following import Following
from bpt.runtime.half_precision import HalfLayers, precision_here
from bpt.runtime.parallel import Portion
from bpt.runtime.recovery import Copies, Record, RecoveryPoint
from bpt.runtime.retaken import samples_taken_again
from bpt.runtime.spreading import spread
from bpt.runtime.tuned_settings import Engine, Inner, TunedSetting
from bpt.runtime.updater import Updater
from bpt.signals import SignalActions
from bpt.state.best import Best
from bpt.state.train_state import TrainState, blob_of
from bpt.violation import refuse

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
    crew: Crew | None = None,
    portion: Portion | None = None,
    log: logging.Logger = LOG,
) -> Runtime:
    """The run that ``plan`` describes, on the ranks of ``world``; a collective call.

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
    crew = crew or Crew.all_of(world or SerialCommunicator())
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


class Runtime(Closing):
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

    def __init__(self, plan: RunPlan, crew: Crew, device: torch.device, log: logging.Logger) -> None:
        self.plan = plan
        self.crew = crew
        self.world = crew.world
        self.device = device
        self.iteration = 0
        self.loss = 0.0
        self.before_passes: list[Callable[[], object]] = []
        self._log = log
        self._ending = Ending()
        self._ending.add(crew.close)

    def arrange(
        self, resume: str, batch_factor: int | None, staging: Staging | None, portion: Portion | None
    ) -> list[LayerGraph]:
        """Refuse what cannot be run, and settle who has what; the nets' graphs, the trained one's first. Collective."""
        plan, world = self.plan, self.world
        refuse(plan, violations_in_step(plan))
        refuse(plan, violations_here(plan) if world.rank == 0 else ())
        outcome_of_first(world, None if world.rank else partial(starting_point.check_files, plan, resume))
        graphs = [build_graph_of(net) for net in (plan.train, *plan.tests)]  # what is wrong in them shows now
        graph, *test_graphs = graphs
        snapshot.check_names(plan, graph)
        check_same(self.crew.everyone, facts_of(plan, *graphs))
        self.parallel = spread(plan, graph, world, self.device, batch_factor, test_graphs, staging, self._log, portion)
        self._ending.add(self.parallel.close)
        self._watch()
        start = None if world.rank else partial(starting_point.start_of, plan, resume)
        self._resume, self.seed = outcome_of_first(world, start)
        return graphs

    def build(
        self, graphs: list[LayerGraph], observer: MakeOperator | None, make_operator: MakeOperator | None, filled: bool
    ) -> None:
        """Make the nets of these graphs, and what runs, updates and saves them; a collective call."""
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
            again, remedy = samples_taken_again(test.operator.net, f"test net (#{index})", plan.test_iter[index])
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
        self._tuned = Engine(plan.engine, operators, world), Inner(plan.parallel_param, operators, world)
        run = world.bcast(token_hex(8))
        self.checkpoint = Checkpoint(plan, self.net, self.updater.rule, self.parallel, self._tuned, run)
        self.observed: SegmentOperator | None = observer(self.net, device) if observer else None
        if self.observed is not None:
            self._ending.add_own(self.observed.close)
            self.updater.on_loss.append(self._divide_diffs)

    def _ended(self, built: Built) -> Built:
        self._ending.add_own(built.operator.close)
        return built

    def _watch(self) -> None:
        """From now on notice ranks that stand still; a collective call of the crew."""
        self.heals = self.crew.everyone.tolerant and self.plan.parallel_param.fault_param.heals
        self.flight_log = FlightLog.of(self.world, self.plan.snapshot_prefix)
        lane = self.parallel.grid.stage
        if beat := heartbeat_of(self.plan, self.crew, self.flight_log, lane, self._has_settled, self.heals):
            self._ending.add(beat.close)

    def _has_settled(self) -> bool:
        """Whether nothing is tried out any more; not before the run is bound."""
        return hasattr(self, "tuner") and self.tuner.settled

    def join(self, signals: SignalActions | None) -> None:
        """Make what it takes to train together with the other ranks; a collective call."""
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
        self.following: Following | None = None
        if parallel.samples.size > 1 and isinstance(parallel.balance, Dynamic):
            division = division_of(self.plan, self.net.graph, parallel.grid, parallel.staging)
            self.following = Following(parallel, self.nets, division, self.device)
        fault = self.plan.parallel_param.fault_param
        copies = Copies(self.world.Dup(), fault.copy_interval) if self.heals and fault.copies else None
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
        """Go on from a state, which is whole, else from the one to resume, else anew; a collective call."""
        if state is not None:
            self.load(state.divided(self.net.graph, self.net.part))
            if self.exchange.apart:  # what each rank that is left knows of its replica
                self.exchange.average()
        elif self._resume:
            self.load(self.checkpoint.read(self._resume, self.state()))
        self._half.settle()
        self._share_weights()
        self.recovery.come_to(self.iteration)
        self.recovery.copy()

    def _exchange(self, operator: SegmentOperator) -> Exchange:
        exchange = self.parallel.exchange(self.net, operator.segments, self.device)
        exchange.follow(Followed(lambda: self.iteration, self.updater.rule.remembered_of))
        self._ending.add(exchange.close)
        return exchange

    @property
    def graph(self) -> LayerGraph:
        """Of the net that is trained."""
        return self.net.graph

    @property
    def net(self) -> Net:
        """The net that is trained."""
        return self.train.operator.net

    def close(self, failed: bool = False) -> None:
        """Close all data sources, and give back threads, shared memory and communicators.

        A collective call, unless something ``failed``. What is closed already stays so.
        """
        self._ending.close(failed)

    def record(self, error: BaseException) -> None:
        """Let the flight recorder write what this rank did before ``error``, if there are others."""
        if self.flight_log:
            self.flight_log.failed(error)

    # Iterations

    def iterate(self, debug: bool = False, observed: bool = False) -> float:
        """Train one iteration; returns its loss.

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
        """What was measured of it is used; a collective call."""
        tuned = self.tuner.settled
        self.tuner.end()
        if self.following and tuned:
            self.following.end(self.iteration + 1)

    def apply_update(self) -> None:
        """Update all parameters from the gradients that they have, which the rule then keeps; an iteration is done."""
        updater = self.updater
        updater.rule.keep_updates(True)
        updater.rule.update(updater.rates(self.iteration), self.iteration)
        self.iteration += 1
        self.executor.forget()

    def go_on_by(self, optim: OptimSpec) -> None:
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
        self.updater.update(self.iteration, loss, executor.applied(), self._look_again)
        self.recovery.come_to(self.iteration + 1)

    def _divide_diffs(self, loss: float) -> None:
        """Who looks at diffs wants those of the loss, whatever its scale."""
        if self.ran is self.observed:
            self.ran.divide_diffs()

    def _take_over_inputs(self) -> None:
        """What a user has set for Input layers, where all can be looked at, is there for all operators of the net."""
        if self.observed is not None:
            seen = self.observed.values
            edges = (edge for node in self.net.graph.nodes if node.type == "Input" for edge in node.tops)
            self.train.operator.feed({edge: seen[edge] for edge in edges if edge in seen})

    def _look_again(self) -> None:
        """Run the training net forward, as the iteration under way did."""
        starting_point.set_positions({"train": self.net}, self._came_from)
        for number in range(self.plan.optim.iter_size):
            self._observing.evaluate(self.iteration, number)

    def look(self, debug: bool = False) -> float:
        """Run the training net forward by the weights of the last update; returns the loss of all ranks. Collective."""
        executor = self._observing
        self.ran = executor.operator
        own = executor.evaluate(self.iteration - 1, self.plan.optim.iter_size - 1, debug=debug)
        return self.train.outputs.total(own)

    def settle(self) -> None:
        """Train until nothing is left to try out: memory layout, inner layer and chunks of gradients."""
        while not self.tuner.settled:
            self.iterate()

    def warm_up(self) -> None:
        """Train until nothing has to be made ready or tried out any more, and go on as if that had not been."""
        before = self.state().copy()
        self.iterate()
        self.settle()
        self.load(before)

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Let all ranks have equal nets inside: a test is divided among them; a collective call."""
        with self.exchange.whole():
            self._come_together()
            yield

    def _come_together(self) -> None:
        self.parallel.before_test(self.net, self.exchange)

    # State

    @property
    def _all_tuned(self) -> tuple[HalfLayers | TunedSetting | Chunks | Following, ...]:
        """What is found out by measuring, and kept in states."""
        return (self._half, *self._tuned, self.chunks, *([self.following] if self.following else []))

    def state(self) -> TrainState:
        """What this rank holds of the state; shares memory with the nets."""
        graph, held = self.net.graph, self.net.held
        history, count = self.updater.rule.history, len(held)
        return replace(
            self._progress(self.iteration),
            weights={blob_of(graph, param): self.net.value(param).detach() for param in held},
            moments={blob_of(graph, param): tuple(history[place::count]) for place, param in enumerate(held)},
            tuned={tuned.name: settled for tuned in self._all_tuned if (settled := tuned.state())},
            extras={self._exchange_name: own} if (own := self.exchange.state()) else {},
        )

    def _progress(self, iteration: int) -> TrainState:
        """Of the state, after so many iterations, how far the run has come: without parameters and what was tuned."""
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
        """Under which a state has what the exchange remembers: a codec's memory is the same with any exchange."""
        return type(self.exchange.codec or self.exchange).__name__

    def records(self) -> list[Record]:
        """What this rank knows of the state of the run, without asking others."""
        return self.recovery.records()

    def load(self, state: TrainState) -> None:
        """Go on from this rank's part of a state.

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
        self.net.kept = ((),) * len(self.graph)
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
        return optim.averages and taken(optim.average_param, self.iteration) > 0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the nets have the average of the weights inside; a collective call, inside of ``testing``."""
        with self.updater.rule.averaged():
            self._come_together()
            yield

    def snapshot(self, name: str = "") -> str:
        """Write weights and solver state under ``snapshot_prefix``; returns the state's path. A collective call.

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
        """Write weights and solver state in the memory of the first rank's host, if that is due; a collective call.

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
        """Go on from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
        """
        self.load(self.checkpoint.read(path, self.state()))
        self._share_weights()

    def _share_weights(self) -> None:
        """Let all ranks have the first one's weights: fillers and files may differ on unlike machines."""
        if self.exchange.apart:
            return
        for net in self.nets.values():
            self.parallel.agree(net, everything=True)
