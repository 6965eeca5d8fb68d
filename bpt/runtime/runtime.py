"""Runtime: a run on the ranks and devices that there are. ``bind`` makes it of a plan and a state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from secrets import token_hex
from types import TracebackType

import torch

from bpt import state as snapshot
from bpt.balance.dynamic import Dynamic
from bpt.comm.base import Communicator
from bpt.comm.serial import SerialCommunicator
from bpt.device import CPU
from bpt.errors import UserError, WriteError
from bpt.events.event import Activity
from bpt.exchange import Exchange
from bpt.exchange.replicas import Followed
from bpt.execute.executor import Executor
from bpt.execute.operator import SegmentOperator
from bpt.graph.layer_graph import LayerGraph
from bpt.layers.prefetching import PrefetchingDataLayer
from bpt.net import Net
from bpt.optim import lr_policy
from bpt.optim.averages import taken
from bpt.optim.loss_scale import LEAST
from bpt.optim.optim_spec import OptimSpec
from bpt.optim.rates import Rates
from bpt.optim.rules import make_rule
from bpt.optim.rules.base import UpdatePiece
from bpt.plan.spec import RunPlan
from bpt.plan.staging import Staging
from bpt.plan.violations import refuse, violations_here, violations_in_step
from bpt.proto import bpt_pb2 as pb
from bpt.runtime import starting_point
from bpt.runtime.agreement import check_content, check_same, data_facts, facts_of, outcome_of_first
from bpt.runtime.autotuner import Autotuner
from bpt.runtime.averaged_weights import averaged_weights
from bpt.runtime.balancing import division_of
from bpt.runtime.built_nets import Builder, Built, MakeOperator
from bpt.runtime.checkpoint import Checkpoint
from bpt.runtime.chunks.tuner import Chunks
from bpt.runtime.crew import Crew, heartbeat_of
from bpt.runtime.divergence import check_loss, check_weights
from bpt.runtime.ending import Ending
from bpt.runtime.flight_log import FlightLog
from bpt.runtime.following import Following
from bpt.runtime.half_precision import HalfLayers, precision_here
from bpt.runtime.loss_scaling import loss_scale
from bpt.runtime.parallel import Portion
from bpt.runtime.recovery import Border, Copies, Known, Record, passed
from bpt.runtime.smoothed_loss import SmoothedLoss
from bpt.runtime.spreading import spread
from bpt.runtime.tuned_settings import Engine, Inner, TunedSetting
from bpt.signals import SignalActions
from bpt.state import in_memory
from bpt.state.best import Best
from bpt.state.train_state import TrainState, blob_of

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
    crew, ending = crew or Crew.all_of(world or SerialCommunicator()), Ending()
    ending.add(crew.close)
    try:
        runtime = Runtime(
            plan if state is None else plan.with_seed(state.seed),
            crew,
            device,
            ending,
            resume=resume,
            observer=observer,
            make_operator=make_operator,
            batch_factor=batch_factor,
            staging=staging,
            portion=portion,
            filled=state is None,
            log=log,
        )
        runtime.join(signals)
        runtime.start_from(state)
    except BaseException:
        ending.close(failed=True)
        raise
    return runtime


class Runtime:
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
        rule: updates the training net.
        losses: the smoothed loss.
        rates: the learning rate of each iteration.
        best, tested: see TrainState; may be set.
        scale: by what losses are multiplied, and gradients divided again.
        heals: whether the run goes on when a rank is lost; see ``healing``.
        before_passes: called when an iteration begins.
        on_loss: called with the loss of each iteration.
        before_update: likewise, when the gradients are those of all ranks and no parameter has been updated by them.
    """

    best: Best | None = None
    tested: int = -1
    _has_room = True  # for snapshots in memory

    def __init__(
        self,
        plan: RunPlan,
        crew: Crew,
        device: torch.device,
        ending: Ending,
        *,
        resume: str = "",
        observer: MakeOperator | None = None,
        make_operator: MakeOperator | None = None,
        batch_factor: int | None = None,
        staging: Staging | None = None,
        portion: Portion | None = None,
        filled: bool = True,
        log: logging.Logger = LOG,
    ) -> None:
        self.plan = plan
        self.crew = crew
        self.world = world = crew.world
        self.device = device
        self._ending = ending
        self.iteration = 0
        self.loss = 0.0
        self.before_passes: list[Callable[[], object]] = []
        self.on_loss: list[Callable[[float], object]] = []
        self.before_update: list[Callable[[float], object]] = []
        refuse(plan, violations_in_step(plan))
        refuse(plan, violations_here(plan) if world.rank == 0 else ())
        outcome_of_first(world, None if world.rank else partial(starting_point.check_files, plan, resume))
        train, tests = plan.train, plan.tests  # what is wrong in them shows before anything is built
        graph, *test_graphs = (net.graph() for net in (train, *tests))
        snapshot.check_names(plan, graph)
        check_same(crew.everyone, facts_of(plan, graph, *test_graphs))
        self.parallel = spread(plan, graph, world, device, batch_factor, test_graphs, staging, log, portion)
        ending.add(self.parallel.close)
        self._watch()
        start = None if world.rank else partial(starting_point.start_of, plan, resume)
        self._resume, self.seed = outcome_of_first(world, start)
        precision = precision_here(plan, world, device, log)
        builder = Builder(device, self.seed, precision, self.parallel, plan.debug_info, make_operator, log)
        self.train = self._ended(builder.build("training net from", train, graph, filled=filled))
        self.ran = self.train.operator
        if not graph.losses:
            log.warning("The training net has no loss: nothing will be learned")
        shared = self.net.values_by_name()
        self.tests: list[Built] = [
            self._ended(builder.build(f"test net (#{index}) specified by", test, test_graph, shared, observer))
            for index, (test, test_graph) in enumerate(zip(tests, test_graphs, strict=True))
        ]
        self.nets = {"train": self.net} | {f"test#{index}": test.operator.net for index, test in enumerate(self.tests)}
        if self.parallel.has_outputs:
            check_same(self.parallel.samples, data_facts(self.nets))
        check_content(world, self.nets)
        for path in snapshot.weight_files(plan.weights, plan.path):
            log.info("Finetuning from %s", path)
            for net in self.nets.values():  # a test net may have layers of its own
                snapshot.load_weights(net, path)
        self.rule = make_rule(plan.optim, self.net, keep_updates=plan.debug_info or plan.snapshot_diff)
        self.rule.before_change = self._leave_border
        self.losses, self.rates = SmoothedLoss(plan.average_loss), Rates(plan.optim, plan.display)
        self.scale = loss_scale(plan, precision, self.parallel, log)
        self._stops_at_nan = plan.on_nan == pb.SolverParameter.STOP
        operators = [built.operator for built in (self.train, *self.tests)]
        self._half = HalfLayers(list(self.nets.values()), precision, world, device)
        self._tuned = Engine(plan.engine, operators, world), Inner(plan.parallel_param, operators, world)
        self._checkpoint = Checkpoint(plan, self.net, self.rule, self.parallel, run=world.bcast(token_hex(8)))
        self.observed: SegmentOperator | None = observer(self.net, device) if observer else None
        if self.observed is not None:
            ending.add_own(self.observed.close)

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
        self.rule.shard_info = parallel.shard_info(self.net, self.exchange)
        self._border: Border | None = None
        fault = self.plan.parallel_param.fault_param
        self._copies = Copies(self.world.Dup(), fault.copy_interval) if self.heals and fault.copies else None
        if self._copies:
            self._ending.add(self._copies.close)
        self.status = parallel.status(signals)
        self._ending.add(self.status.close)
        passes = self.plan.optim.iter_size
        rule = parallel.staging.rule if parallel.staging else pb.PipelineParameter.SEQUENTIAL
        self.executor = Executor(operator, self.exchange, self.status, self.events, passes, rule)
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
            self.load(self._checkpoint.read(self._resume, self.state()))
        self._half.settle()
        self._share_weights()
        self._come_to_border(self.iteration)
        self._copy(self.iteration)

    def _exchange(self, operator: SegmentOperator) -> Exchange:
        exchange = self.parallel.exchange(self.net, operator.segments, self.device)
        exchange.follow(Followed(lambda: self.iteration, self.rule.remembered_of))
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

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

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
        lr_policy.log_step(self.plan.optim, self.iteration)
        self._came_from = starting_point.positions_of({"train": self.net})
        self._come_to_border(self.iteration)
        for call in self.before_passes:
            call()
        observed = observed and self.observed is not None
        self.rule.keep_updates(observed or self.plan.debug_info or self.plan.snapshot_diff)
        if observed:
            self.loss = self._train(self._observing, debug)
        else:
            self._take_over_inputs()
            self.tuner.start()
            self.loss = self._train(self.executor, debug)
            with self.events.during(Activity.BETWEEN):
                self._end_of_iteration()
        self.iteration += 1
        self._copy(self.iteration)
        return self.loss

    def _end_of_iteration(self) -> None:
        """What was measured of it is used; a collective call."""
        tuned = self.tuner.settled
        self.tuner.end()
        if self.following and tuned:
            self.following.end(self.iteration + 1)

    def apply_update(self) -> None:
        """Update all parameters from the gradients that they have, which the rule then keeps; an iteration is done."""
        self.rule.keep_updates(True)
        self.rule.update(self.rates(self.iteration), self.iteration)
        self.iteration += 1
        self.executor.forget()

    def go_on_by(self, optim: OptimSpec) -> None:
        """Take learning rates from another spec from now on, of the same rule."""
        self.plan, self.rates.spec = replace(self.plan, optim=optim), optim

    def run(self, iterations: int) -> None:
        """Train so many iterations."""
        for _ in range(iterations):
            self.iterate()

    def _train(self, executor: Executor, debug: bool) -> float:
        self.ran = executor.operator
        early = None if debug else self._early(executor)
        if self.scale.dynamic and self.exchange.codec:
            self.exchange.codec.begin(self.scale.value)
        return executor.train(self.iteration, lambda loss: self._update(executor, loss), debug, self.scale.begin, early)

    def _early(self, executor: Executor) -> UpdatePiece | None:
        """What updates parameters while others still wait for their gradients; ``None`` where all must be there first:
        to be summed over ranks, divided by a loss scale, clipped, or looked at, or phases are told apart."""
        alone = self.parallel.is_alone and len(executor.operator.segments) == 1
        scaled = self.scale.dynamic or self.scale.value != 1
        watched = self.before_update or self.events.listens
        if not alone or scaled or watched or self.rates.follows_loss or not executor.operator.compute.updates:
            return None
        return self.rule.piecewise(self.rates(self.iteration), self.iteration)

    def _update(self, executor: Executor, loss: float) -> None:
        """Update the parameters, when all has been shown, in this order, as Caffe does."""
        if self._stops_at_nan and not (self.scale.dynamic and self.scale.value > LEAST):  # that update is left out
            check_loss(loss, self.iteration, self.plan.optim, self.net, self.world, self._look_again)
        self.losses.add(self.iteration, loss)
        self.rates.see(self.iteration, self.losses.value)
        applied = [(each, self._parameters_of(each.layers)) for each in executor.applied()]
        finite = self._divide_gradients([(each.batch, members) for each, members in applied])
        if executor.operator is self.observed:
            self.observed.divide_diffs()
        for call in (*self.on_loss, *self.before_update):
            call(loss)
        for each, members in applied if finite else ():
            self.rule.update(self.rates(each.iteration), each.iteration, members)
        self.rule.average(self.iteration + 1)
        self._come_to_border(self.iteration + 1)

    def _parameters_of(self, layers: Set[int] | None) -> list[int]:
        """The indices of those parameters that layers have; ``None``: of all."""
        held = enumerate(self.net.held)
        return [index for index, param in held if layers is None or param.layer in layers]

    def _divide_gradients(self, of: Sequence[tuple[int, Sequence[int]]]) -> bool:
        """Make true gradients of those of scaled losses; without any, if one is not finite. Whether all are.

        Args:
            of: the number of a batch, and the parameters with its gradients.
        """
        each = [self.scale.divide(self.rule.gradients(members), batch) for batch, members in of]
        finite = all(each)
        if not finite:
            self.rule.skip()
            if self.exchange.codec:
                self.exchange.codec.undo()
        if self.scale.dynamic and self.parallel.is_delayed:
            self.scale.learn(not self.status.overflown)
            self.status.overflow = not finite  # is told with the next loss
        return finite

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
        history, count = self.rule.history, len(held)
        return TrainState(
            iteration=self.iteration,
            seed=self.seed,
            weights={blob_of(graph, param): self.net.value(param).detach() for param in held},
            moments={blob_of(graph, param): tuple(history[place::count]) for place, param in enumerate(held)},
            positions=starting_point.positions_of(self.nets),
            losses=self.losses.history,
            tuned={tuned.name: settled for tuned in self._all_tuned if (settled := tuned.state())},
            loss_scale=self.scale.state(),
            plateau=self.rates.state(),
            best=self.best,
            tested=self.tested,
            run=self._checkpoint.run,
            extras={self._exchange_name: own} if (own := self.exchange.state()) else {},
        )

    @property
    def _exchange_name(self) -> str:
        """Under which a state has what the exchange remembers: a codec's memory is the same with any exchange."""
        return type(self.exchange.codec or self.exchange).__name__

    def records(self) -> list[Record]:
        """What this rank knows of the state of the run, without asking others."""
        own = self._record()
        return [*([own] if own else ()), *(self._copies.records if self._copies else ())]

    def _record(self) -> Record | None:
        """Of this rank's part at the last border between iterations; ``None``: it is in the middle of an update."""
        if self._border is None:
            return None
        values = {id(self.net.value(param)): blob_of(self.net.graph, param) for param in self.net.held}
        frozen = frozenset(values[number] for number in self.exchange.frozen() & values.keys())
        border = self._border
        known = Known(border.iteration, self.net.part, frozen, border.positions, border.tested, border.best)
        return Record(known, border.of(self.state()))

    def _come_to_border(self, iteration: int) -> None:
        """Between two iterations, of which so many are complete: note what the next one changes before its end."""
        if self.heals:
            graph, held = self.net.graph, self.net.held
            self._border = Border(
                iteration,
                starting_point.positions_of(self.nets),
                passed((blob_of(graph, param), self.net.value(param)) for param in held),
                self.losses.history,
                self.scale.state(),
                self.rates.state(),
                self.tested,
                self.best,
            )

    def _leave_border(self) -> None:
        """Parameters are about to change: until all have, there is no state that this rank knows of."""
        self._border = None

    def _copy(self, iteration: int) -> None:
        if self._copies and iteration % self._copies.interval == 0 and (own := self._record()):
            with self.events.during(Activity.BETWEEN):
                self._copies.take(own)

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
        graph, held = self.net.graph, self.net.held
        no_moments = (torch.zeros(()),) * self.rule.remembered
        with torch.no_grad():
            for place, param in enumerate(held):
                blob = blob_of(graph, param)
                self.net.value(param).copy_(state.weights[blob])
                self.net.value(param).grad = None
                moments = self.rule.history[place :: len(held)]
                for own, value in zip(moments, state.moments.get(blob, no_moments), strict=True):
                    own.copy_(value)
                if self.rule.averages and blob not in state.moments:
                    moments[-1].copy_(state.weights[blob])
        starting_point.set_positions(self.nets, state.positions)
        self.net.kept = ((),) * len(graph)
        for tuned in self._all_tuned:
            if tuned.name in state.tuned:
                tuned.load(state.tuned[tuned.name])
        self.scale.load(state.loss_scale)
        self.rates.load(state.plateau)
        self.best, self.tested = state.best, state.tested
        self._checkpoint = self._checkpoint.of_run(state)
        self.iteration = state.iteration
        self.exchange.load(state.extras.get(self._exchange_name, {}))
        self.executor.forget()
        self.losses = SmoothedLoss(self.plan.average_loss, state.losses)

    @property
    def has_average(self) -> bool:
        """Whether there is an average of the weights."""
        optim = self.plan.optim
        return optim.averages and taken(optim.average_param, self.iteration) > 0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the nets have the average of the weights inside; a collective call, inside of ``testing``."""
        with averaged_weights(self.rule):
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
        self._settle_to_save()
        with self.exchange.whole():
            path = self._checkpoint.write(self.state(), name, self.has_average)
        self.forget_in_memory()
        return path

    def snapshot_in_memory(self) -> None:
        """Write weights and solver state in the memory of the first rank's host, if that is due; a collective call.

        Not while it is tried out how to compute. Where there is no room for it, a warning says so, once, and the run
        goes on without.

        Raises:
            DivergedError: see ``snapshot``.
        """
        every = self.plan.parallel_param.fault_param.memory_snapshot
        if not every or self.iteration % every or not self._has_room or not self.tuner.settled:
            return
        try:
            with self.events.during(Activity.SNAPSHOT):
                self._settle_to_save()
                with self.exchange.whole():
                    self._checkpoint.write_in_memory(self.state())
        except WriteError as error:
            self._has_room = False
            LOG.warning("memory_snapshot: %s; the run goes on without snapshots in memory", error)

    def forget_in_memory(self) -> None:
        """Remove what is in memory: there is something newer on disk, or the run is at its end."""
        if self.plan.parallel_param.fault_param.memory_snapshot and self.world.rank == 0:
            in_memory.remove(self.plan.snapshot_prefix)

    def _settle_to_save(self) -> None:
        """This run and the one that resumes it must go on alike, or their roundings part."""
        if self._stops_at_nan:
            check_weights(self.iteration, self.net, self.world)
        for tuned in self._tuned:
            tuned.settle()
        self.parallel.agree(self.net)

    def restore(self, path: str) -> None:
        """Go on from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
        """
        self.load(self._checkpoint.read(path, self.state()))
        self._share_weights()

    def _share_weights(self) -> None:
        """Let all ranks have the first one's weights: fillers and files may differ on unlike machines."""
        if self.exchange.apart:
            return
        for net in self.nets.values():
            self.parallel.agree(net, everything=True)
