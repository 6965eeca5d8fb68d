"""The rules of replicas that are not alike: which settings combine with ``parallel_param { replica }``."""

from __future__ import annotations

from collections.abc import Iterator

from bpt.base.log import plural
from bpt.base.violation import PARALLEL, Violation
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers import LAYERS
from bpt.parallel.balance.divisible_batches import gathering

_Parallel, _Pipeline = pb.ParallelParameter, pb.PipelineParameter
FIELD = "replica"
ALIKE = "leave replica out, or give all replicas the same num_stages"


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why the plan's replicas make no sense, or why they cannot be unlike."""
    parallel = plan.parallel_param
    for index, replica in enumerate(parallel.replica):
        at = (PARALLEL, FIELD, index)
        for field in ("ranks", "num_stages"):
            value = getattr(replica, field)
            if value < 1 and (value or (*at, field) in plan.origins):  # ranks that are left out are 0
                yield Violation((*at, field), f"{field} is {value}; it must be at least 1", about=FIELD)
        if replica.num_stages > 0 and replica.ranks % replica.num_stages:
            yield Violation(
                (*at, "ranks"),
                f"ranks: {replica.ranks} cannot be divided into replicas of num_stages: {replica.num_stages}",
                f"use a multiple of {replica.num_stages}",
                about=FIELD,
            )
    for field in ("num_stages", "num_shards") if parallel.replica else ():
        if getattr(parallel, field) > 1:
            yield Violation(
                (PARALLEL, field), f"{field} is for replicas that are alike", f"leave out {field} or replica"
            )
    if parallel.replica and parallel.fault_param.spares:
        why = "spares replace ranks of replicas that are alike; listed replicas continue with fewer stages"
        yield Violation((PARALLEL, "fault_param", "spares"), why, "leave out spares or replica")
    if parallel.replica and plan.is_outer:
        why = "replicas that are listed train in step, and under exchange: {exchange} workers submit weights one by one"
        name = _Parallel.Exchange.Name(parallel.exchange)
        yield Violation((PARALLEL, FIELD), why, "leave replica out", exchange=name)
    elif parallel.is_unlike:
        yield from _unlike(plan)


def _unlike(plan: RunPlan) -> Iterator[Violation]:
    parallel, pipeline = plan.parallel_param, plan.parallel_param.pipeline_param
    if parallel.exchange != _Parallel.ALLREDUCE:
        why = "exchange: {exchange} sums a rank's gradients over one group of ranks, and in unlike replicas a rank "
        why += "shares its layers with several groups"
        name = _Parallel.Exchange.Name(parallel.exchange)
        yield Violation((PARALLEL, "exchange"), why, f"use ALLREDUCE, or {ALIKE}", exchange=name)
    if name := parallel.compression_param.name:
        why = f"codec: {name} keeps residuals of each rank's messages, and unlike replicas have different messages"
        yield Violation((PARALLEL, "compression_param", "codec"), why, f"leave it out, or {ALIKE}")
    if parallel.transport == _Parallel.TORCH_DISTRIBUTED:
        why = "transport: TORCH_DISTRIBUTED makes the same groups on all ranks, and those of unlike replicas overlap"
        yield Violation((PARALLEL, "transport"), why, f"leave it out, or {ALIKE}")
    if pipeline.schedule == _Pipeline.DELAYED:
        why = "schedule: DELAYED applies gradients as late as there are stages, and unlike replicas differ in stages"
        yield Violation((PARALLEL, "pipeline_param", "schedule"), why, f"use GPIPE or ONE_F_ONE_B, or {ALIKE}")
    if pipeline.allocator != _Pipeline.BLOCK:
        name = _Pipeline.Allocator.Name(pipeline.allocator)
        why = f"allocator: {name} may give a stage several runs of layers, whose gradients unlike replicas sum in "
        why += "different orders"
        yield Violation((PARALLEL, "pipeline_param", "allocator"), why, f"use BLOCK, or {ALIKE}")
    for field in ("devices", "capacity", "partitions"):
        if getattr(pipeline, field):
            why = f"{field} describes the stages of one pipeline, and unlike replicas have several"
            yield Violation((PARALLEL, "pipeline_param", field), why, f"leave it out, or {ALIKE}")


def violations_of_ranks(plan: RunPlan, ranks: int) -> Iterator[Violation]:
    """Yield why ``ranks`` ranks do not form the replicas that the plan lists."""
    layout = plan.parallel_param.layout(ranks)
    if plan.parallel_param.replica and layout.size != ranks:
        yield Violation(
            (PARALLEL, FIELD),
            f"the replicas have {layout}, but there {'is' if ranks == 1 else 'are'} {plural(ranks, 'rank')}",
            f"start {plural(layout.size, 'rank')} (mpirun -n {layout.size}), or change replica",
        )


def violations_of_net(plan: RunPlan, graph: LayerGraph) -> Iterator[Violation]:
    """Yield the layers that normalise micro-batches of all replicas together, which unlike replicas do not have."""
    parallel = plan.parallel_param
    if not parallel.is_unlike or graph.phase != pb.TRAIN or parallel.pipeline_param.micro_batches == 1:
        return
    gathers = gathering(graph, parallel.pipeline_param)
    for node in graph.nodes:
        if node.index not in gathers and LAYERS[node.type].syncs(node.spec, parallel.sync_batch_norm):
            yield Violation(
                (PARALLEL, FIELD),
                "it normalises each micro-batch of all replicas together (sync), and unlike replicas have their "
                "micro-batches at different moments",
                "set pipeline_param { batch_norm_over: BATCH }, or micro_batches: 1",
                layer=node.name,
                place=node.spec.origin(),
            )
