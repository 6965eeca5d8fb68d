"""``bind``: makes a Runtime from a plan, on the available ranks and device."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from secrets import token_hex

from bpt.base.errors import PrototxtError
from bpt.base.violation import refuse
from bpt.config.plan.run_plan import RunPlan
from bpt.engine.executor import Executor
from bpt.engine.operator import Operator
from bpt.engine.optim.rules import UpdateRule, make_rule
from bpt.engine.optim.weight_slices import WeightSlices
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers.base import batch_of
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.balance_rules import is_by_iteration
from bpt.parallel.balance.dynamic import Dynamic
from bpt.parallel.balance.dynamic_balancer import DynamicLoadBalancer
from bpt.parallel.balance.load_balance import division_of
from bpt.parallel.balance.noise_scale import NoiseScale
from bpt.parallel.cgdp.tuner import Chunks
from bpt.parallel.exchange import Exchange
from bpt.parallel.exchange.averaging_context import TrainingProgress
from bpt.system.comm.agreement import check_same, outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train import state as snapshot
from bpt.train.rules.violations import violations_here, violations_in_step
from bpt.train.runtime import starting_point
from bpt.train.runtime.adaptive_batch import AdaptiveBatch
from bpt.train.runtime.algorithm_setting import AlgorithmSetting
from bpt.train.runtime.autotuner import Autotuner
from bpt.train.runtime.built_nets import Builder, RunNets
from bpt.train.runtime.checkpoint import Checkpoint
from bpt.train.runtime.cleanup import CleanupStack
from bpt.train.runtime.flight_log import FlightLog
from bpt.train.runtime.half_precision import HalfLayers, precision_here
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.parallel_setup import setup_parallelism
from bpt.train.runtime.passes import TrainingPasses
from bpt.train.runtime.rank_group import RankGroup, heartbeat_of
from bpt.train.runtime.recovery import RecoveryPoint, StateCopies
from bpt.train.runtime.run_facts import check_content, data_facts, facts_of
from bpt.train.runtime.run_state import RunProgress, RunState
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.test_wraparound import wraparound_of_test_set
from bpt.train.runtime.train_options import DEFAULT_OPTIONS, TrainOptions
from bpt.train.runtime.tuned_settings import Inner, MemoryFormatSetting
from bpt.train.runtime.updater import Updater
from bpt.train.state.train_state import TrainState

LOG = logging.getLogger("bpt")


def bind(
    plan: RunPlan,
    state: TrainState | None = None,
    world: Communicator | RankGroup | None = None,
    options: TrainOptions = DEFAULT_OPTIONS,
) -> Runtime:
    """Return the run that ``plan`` describes, on the ranks of ``world``; a collective call.

    Args:
        state: the whole state from which the run continues, on all ranks; by default the net's fillers start a new run.
        world: the ranks that train together, or their group; by default this rank is alone.

    Raises:
        UserError: the plan cannot run; the message says where and why.
        FileError: the state to resume is missing, damaged, of another kind, or of another net.
    """
    group = world if isinstance(world, RankGroup) else RankGroup.all_of(world or SerialCommunicator())
    if state is not None:
        plan, options = plan.with_seed(state.seed), replace(options, resume="")
    with _closed_after_failure() as cleanup:
        cleanup.add(group.close)
        return _bound(plan, state, group, options, cleanup)


@contextmanager
def _closed_after_failure() -> Iterator[CleanupStack]:
    """Provide a CleanupStack, and close it if the block fails."""
    cleanup = CleanupStack()
    try:
        yield cleanup
    except BaseException:
        cleanup.close(failed=True)
        raise


def _bound(
    plan: RunPlan, state: TrainState | None, group: RankGroup, options: TrainOptions, cleanup: CleanupStack
) -> Runtime:
    world, device, log = group.world, options.device, options.log
    graphs = _checked_graphs(plan, group, options.resume)
    parallel = setup_parallelism(plan, graphs[0], world, graphs[1:], options)
    cleanup.add(parallel.close)

    progress = RunProgress()
    heals = group.everyone.tolerant and plan.parallel_param.fault_param.heals
    flight_log = FlightLog.of(world, plan.snapshot_prefix)
    beat = heartbeat_of(plan, group, flight_log, parallel.grid.lane, lambda: progress.is_settled, heals)
    if beat:
        cleanup.add(beat.close)

    start = None if world.rank else partial(starting_point.start_of, plan, options.resume)
    resumed, seed = outcome_of_first(world, start)
    precision = precision_here(plan, world, device, log)
    builder = Builder(seed, precision, parallel, plan.debug_info, options)
    nets = _built_nets(plan, graphs, builder, options, state is None, cleanup)
    _check_data(nets, parallel)
    _load_weights(plan, nets, options)
    net, operator = nets.net, nets.train.operator

    slices = parallel.slices(net, operator.segments, device)
    rule = make_rule(plan.optim, net, plan.debug_info or plan.snapshot_diff, slices)
    exchange = _made_exchange(parallel, operator, progress, rule, slices, cleanup)
    status = parallel.status(options.signals)
    cleanup.add(status.close)
    updater = Updater(plan, net, rule, parallel, exchange, status, log)

    half = HalfLayers(list(nets.by_name.values()), precision, world, device)
    tuner = _made_tuner(plan, parallel, nets, exchange, options, cleanup)
    run = world.bcast(token_hex(8))
    checkpoint = Checkpoint(plan, net, rule, parallel, exchange, tuner.kernel_settings, run, options.serves)
    batch = _made_batch(plan, parallel, nets, exchange)
    noise = batch.scale if batch else None
    tuned = half, *tuner.settings
    run_state = RunState(seed, progress, parallel, nets, updater, exchange, tuned, checkpoint, noise=noise)
    fault = plan.parallel_param.fault_param
    copies = StateCopies(world.Dup(), fault.copy_interval) if heals and fault.copies else None
    if copies:
        cleanup.add(copies.close)
    recovery = RecoveryPoint(net, exchange, run_state.current, run_state.without_tensors, heals, copies)
    rule.before_change = recovery.leave

    count = plan.optim.iter_size
    executor = observing = Executor(operator, exchange, status, world.events, count)
    if options.observer:
        observed = options.observer(net, device)
        cleanup.add_own(observed.close)
        own = _made_exchange(parallel, observed, progress, rule, slices, cleanup)
        observing = Executor(observed, own, status, world.events, count)
    passes = TrainingPasses(executor, observing, updater, recovery, batch)

    _start(run_state, state, resumed, half)
    recovery.come_to(progress.iteration)
    recovery.copy()
    progress.is_settled = tuner.settled
    return Runtime(
        plan, group, heals, parallel, nets, exchange, updater, tuner, checkpoint, recovery, status, passes, run_state,
        flight_log, cleanup,
    )  # fmt: skip


def _checked_graphs(plan: RunPlan, group: RankGroup, resume: str) -> list[LayerGraph]:
    """Return the graphs of the nets, the training net's first; refuse a plan that cannot run. A collective call."""
    world = group.world
    refuse(plan, violations_in_step(plan))
    refuse(plan, violations_here(plan) if world.rank == 0 else ())
    outcome_of_first(world, None if world.rank else partial(starting_point.check_files, plan, resume))
    graphs = [build_graph_of(net) for net in (plan.train, *plan.tests)]
    snapshot.check_names(plan, graphs[0])
    check_same(group.everyone, facts_of(plan, *graphs))
    return graphs


def _built_nets(
    plan: RunPlan,
    graphs: list[LayerGraph],
    builder: Builder,
    options: TrainOptions,
    filled: bool,
    cleanup: CleanupStack,
) -> RunNets:
    """Return the nets of these graphs, with their operators.

    Args:
        filled: whether to fill the parameters.
    """
    graph, *test_graphs = graphs
    train = builder.build("training net from", plan.train, graph, filled=filled)
    cleanup.add_own(train.operator.close)
    if not graph.losses:
        options.log.warning("The training net has no loss: nothing will be learned")
    shared = train.operator.net.values_by_name()
    tests = []
    for index, (test, test_graph) in enumerate(zip(plan.tests, test_graphs, strict=True)):
        what = f"test net (#{index}) specified by"
        tests.append(builder.build(what, test, test_graph, shared, options.observer))
        cleanup.add_own(tests[-1].operator.close)
    for index, built in enumerate(tests):
        again, remedy = wraparound_of_test_set(built.operator.net, f"test net (#{index})", plan.test_iter[index])
        if again:
            options.log.warning("%s; %s", again, remedy)
    return RunNets(train, tuple(tests))


def _check_data(nets: RunNets, parallel: Parallel) -> None:
    """Check that all ranks read the same data, and connect data layers to this rank's events; a collective call."""
    world = parallel.grid.world
    if parallel.batches.has_outputs:
        check_same(parallel.batches.samples, data_facts(nets.by_name))
    check_content(world, nets.by_name)
    for net in nets.by_name.values():
        for layer in net.data_layers().values():
            if isinstance(layer, PrefetchingDataLayer):
                layer.report_to(world.events)


def _load_weights(plan: RunPlan, nets: RunNets, options: TrainOptions) -> None:
    """Load the plan's ``weights`` into all nets, because a test net may have other layers."""
    for path in snapshot.weight_files(plan.weights, plan.path):
        options.log.info("Finetuning from %s", path)
        for net in nets.by_name.values():
            snapshot.load_weights(net, path)


def _made_exchange(
    parallel: Parallel,
    operator: Operator,
    progress: RunProgress,
    rule: UpdateRule,
    slices: WeightSlices,
    cleanup: CleanupStack,
) -> Exchange:
    """Return the exchange that sums the gradients of ``operator``; a collective call."""
    exchange = parallel.exchange(operator.net, operator.segments, operator.device, slices)
    exchange.follow(TrainingProgress(lambda: progress.iteration, rule.optimizer_state))
    cleanup.add(exchange.close)
    return exchange


def _made_tuner(
    plan: RunPlan,
    parallel: Parallel,
    nets: RunNets,
    exchange: Exchange,
    options: TrainOptions,
    cleanup: CleanupStack,
) -> Autotuner:
    """Return the autotuner of the run; a collective call."""
    world, operators, device = parallel.grid.world, nets.operators, options.device
    memory_format = MemoryFormatSetting(plan.engine, operators, world)
    engines = memory_format, Inner(plan.parallel_param, operators, world)
    algorithms = AlgorithmSetting(plan, operators[0], memory_format, world) if options.tries_algorithms else None
    chunks = Chunks(parallel, operators[0], exchange, plan, fixed=plan.debug_info)
    cleanup.add_own(chunks.close)
    balancer = None
    if parallel.batches.number > 1 and isinstance(parallel.batches.balance, Dynamic):
        division = division_of(plan, nets.net.graph, parallel.grid, parallel.staging)
        segments = (lambda: len(operators[0].segments)) if is_by_iteration(plan) else None
        passes = max(plan.optim.iter_size, 1)
        balancer = DynamicLoadBalancer(parallel.batches, nets.by_name, division, device, segments, passes)
        cleanup.add_own(balancer.close)
    return Autotuner(engines, chunks, device, balancer, algorithms)


def _made_batch(plan: RunPlan, parallel: Parallel, nets: RunNets, exchange: Exchange) -> AdaptiveBatch | None:
    """Return what adapts the batch to the noise of gradients, if the plan says so."""
    param, text = plan.parallel_param.balance_param, batch_of(nets.net.graph)
    if not param.follows_noise:
        return None
    (batch,) = {share.total for share in parallel.batches.shares(text)}
    least, most = max(1, -(-param.batch.min // batch)), param.batch.max // batch
    if most < least:
        why = f"max: {param.batch.max} is less than {least} batch{'es' * (least > 1)} of {batch} samples; use max: "
        why += f"{least * batch} or more, or a smaller batch_size"
        raise PrototxtError(f"parallel_param: batch: {why}", plan.origin("parallel_param", "balance_param", "batch"))
    if parallel.is_alone:
        LOG.warning("batch { rule: NOISE_SCALE } needs the gradients of several ranks; the batch stays at its min")
    scale = NoiseScale(batch, least, most)
    return AdaptiveBatch(scale, exchange, parallel.grid.world, partial(parallel.batches.shares, text))


def _start(run_state: RunState, state: TrainState | None, resumed: str, half: HalfLayers) -> None:
    """Start from a whole state, else from the snapshot ``resumed``, else anew; a collective call."""
    net, exchange = run_state.nets.net, run_state.exchange
    if state is not None:
        run_state.load(state.divided(net.graph, net.part))
        if exchange.replicas_diverged:  # what each remaining rank knows of its replica
            exchange.average()
    elif resumed:
        run_state.load(run_state.checkpoint.read(resumed, run_state.current()))
    half.settle()
    run_state.share_weights()
