"""Chooses the parallelisation of a run, refuses impossible ones, and logs the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bpt.base.log import plural
from bpt.base.violation import PARALLEL, IgnoredSetting, refuse
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.staging import Staging
from bpt.nn.layers.base import batch_of
from bpt.parallel.balance import Balance, Uniform
from bpt.parallel.balance.divisible_batches import is_dividable
from bpt.parallel.balance.dynamic import Dynamic
from bpt.parallel.balance.load_balance import static_balance
from bpt.parallel.exchange import exchange_rules
from bpt.parallel.exchange.exchange_rules import TORCH_DISTRIBUTED
from bpt.system.comm.agreement import outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.system.device import use_line
from bpt.train.rules.violations import ignored_settings
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.rank_grid import make_grid
from bpt.train.runtime.train_options import DEFAULT_OPTIONS, TrainOptions


def setup_parallelism(
    plan: RunPlan,
    graph: LayerGraph,
    world: Communicator,
    tests: Sequence[LayerGraph] = (),
    options: TrainOptions = DEFAULT_OPTIONS,
) -> Parallel:
    """Return the parallelisation of ``plan``, with its training net ``graph``, on ``world``; a collective call.

    Args:
        tests: the graphs of the test nets, which are divided in the same way.

    Raises:
        PrototxtError: the ranks do not form the plan's grid, or a layer cannot be divided.
        FileError: the profile of ``balance: STATIC`` is missing, or belongs to another run.
    """
    device, log = options.device, options.log
    refuse(plan, exchange_rules.violations_of_launcher(plan, world.by_torch, world.tolerant))
    if world.by_torch and exchange_rules.can_sum_by_torch(plan):
        plan = replace(plan, parallel_param=replace(plan.parallel_param, transport=TORCH_DISTRIBUTED))
    param = plan.parallel_param
    on_gpu = device.type != "cpu"
    grid = make_grid(plan, graph, world, tests, on_gpu)

    kinds: Sequence[Staging] = (options.staging,) if options.staging else ()
    if param.depth > 1:
        # A run imports only what it needs; see docs/architecture.md.
        from bpt.parallel.pipeline.stage_placement import described, stage_kinds  # noqa: PLC0415

        def staged() -> Sequence[Staging]:
            return stage_kinds(plan, graph, grid.layout)

        kinds = kinds or outcome_of_first(world, None if world.rank else staged)
    staging = kinds[grid.layout.kind_of(grid.replica)] if kinds else None
    balance: Balance = Uniform()
    if param.balance == pb.ParallelParameter.STATIC:
        balance = static_balance(plan, graph, grid, device, staging if param.depth > 1 else None)
    elif param.balance == pb.ParallelParameter.DYNAMIC:
        balance = Dynamic(grid.replicas * (grid.shards if param.fc_param.scheme == pb.FcParameter.PEER else 1))
    keeps_batches = world.size > 1 and not is_dividable(graph)
    parallel = Parallel(param, grid, balance, options.batch_factor, staging, keeps_batches, options.replica_share)
    if plan.text:  # only a solver has one; not earlier, because a long text would hide a refusal
        for note in plan.notes:
            log.info("%s", note)
        log.info("%s", use_line(device))
        log.info("Initializing solver from parameters: \n%s", plan.text)
    if world.size > 1:
        log.info("Parallel: %s", parallel.described)
        between = param.compression_param.links == pb.CompressionParameter.BETWEEN_HOSTS
        if parallel.codec and between and len(set(world.allgather(world.host))) == 1:
            log.warning(
                "parallel_param: compression_param has no effect, since all ranks are on one host; links: ALL is for "
                "what travels there, too"
            )
    if param.depth > 1:
        assert staging
        for line in described(staging):
            log.info("%s", line)
    for remark in (*ignored_settings(plan, on_gpu, graph), *_ignored_on(parallel, graph)):
        log.warning("%s", remark)
    return parallel


def _ignored_on(parallel: Parallel, graph: LayerGraph) -> Iterator[IgnoredSetting]:
    """Yield the settings that have no effect on this number of ranks, or with this number of samples on each."""
    param, update = parallel.param, (PARALLEL, "update")
    if param.divides_update and parallel.is_alone:
        yield IgnoredSetting(update, "on one rank, which updates all weights")
    most = max(share.count for share in parallel.batches.shares(batch_of(graph), graph.phase))
    if parallel.grid.shards > 1 and 1 <= most < param.fc_param.pieces:
        words = f"fc_param {{ pieces: {param.fc_param.pieces} }} makes only {plural(most, 'piece')}"
        yield IgnoredSetting((PARALLEL, "fc_param", "pieces"), "", f"{words}: no rank has more samples of a batch")
