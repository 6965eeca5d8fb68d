"""The rules of pipelines: which settings combine with stages and schedules, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rules import UPDATE_RULES
from bpt.nn.layers import LAYERS

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan
    from bpt.graph.layer_graph import LayerGraph

_Pipeline = pb.PipelineParameter
PARAM = "pipeline_param"


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why such a pipeline is impossible; nothing if there are no stages."""
    if plan.parallel_param.depth > 1:
        yield from violations_in_pipeline(plan)


def violations_in_pipeline(plan: RunPlan) -> Iterator[Violation]:
    """Yield why such a pipeline is impossible, also one of one stage, as it is planned for one device."""
    yield from _numbers(plan)
    yield from _combinations(plan)
    if plan.parallel_param.pipeline_param.schedule == _Pipeline.DELAYED:
        yield from _delayed(plan)


def _numbers(plan: RunPlan) -> Iterator[Violation]:
    parallel, param = plan.parallel_param, plan.parallel_param.pipeline_param
    for field, least in (("micro_batches", 1), ("partitions", 0)):
        yield from check_range(param, field, PARALLEL, PARAM, least=least)
    for field, least in (("population", 2), ("generations", 0), ("seed", 0)):
        yield from check_range(param.gabra_param, field, PARALLEL, PARAM, "gabra_param", least=least)
    if not 0 <= param.gabra_param.crossover <= 1:
        way = (PARALLEL, PARAM, "gabra_param", "crossover")
        yield Violation(way, f"crossover is {param.gabra_param.crossover:g}; it must be from 0 to 1")
    if 0 < param.partitions < parallel.depth:
        yield Violation(
            (PARALLEL, PARAM, "partitions"),
            f"partitions: {param.partitions} are too few for num_stages: {parallel.depth}: every stage runs one "
            "at least",
        )


def _combinations(plan: RunPlan) -> Iterator[Violation]:
    parallel = plan.parallel_param
    stages = f"num_stages: {parallel.depth}"
    engine, schedule = parallel.inner_param.engine, parallel.pipeline_param.schedule
    if schedule == _Pipeline.ZERO_BUBBLE and engine != pb.InnerParameter.LIBRARY:
        name = pb.InnerParameter.Engine.Name(engine)
        yield Violation(
            (PARALLEL, "inner_param", "engine"),
            f"engine: {name} computes the gradients of a layer's inputs and weights in one DAG of tasks, and schedule: "
            "ZERO_BUBBLE computes them apart",
            "set schedule: ONE_F_ONE_B, or leave engine out",
        )
    if plan.debug_info:
        yield Violation(
            ("debug_info",), f"debug_info: true looks at every layer, and with {stages} no rank has them all"
        )


def _delayed(plan: RunPlan) -> Iterator[Violation]:
    parallel, optim = plan.parallel_param, plan.optim

    def refused(why: str, remedy: str, *field: str) -> Violation:
        return Violation(field, f"schedule: DELAYED {why}", remedy, about=PARAM)

    if optim.iter_size > 1:
        why = "applies the gradient of one batch at a time"
        yield refused(why, f"iter_size is {optim.iter_size}, set 1", "iter_size")
    if optim.clip_gradients >= 0:
        why = "updates stages with gradients of different iterations, which have no norm together"
        yield refused(why, "leave clip_gradients out", "clip_gradients")
    if parallel.exchange == pb.ParallelParameter.CGDP and not parallel.cgdp_param.chunk_size:
        why = "has batches under way when a search for chunks would cut the net anew"
        yield refused(why, "set cgdp_param { chunk_size }", PARALLEL, "cgdp_param")
    if parallel.corrects_delays:
        field = (PARALLEL, PARAM, "correction")
        if not UPDATE_RULES[optim.type].corrects_delays:
            why = (
                f'correction: NESTEROV looks ahead along the momentum of SGD, and type: "{optim.type}" has another rule'
            )
            yield Violation(field, why, 'set type: "SGD" or "Nesterov"')
        if parallel.exchange == pb.ParallelParameter.ASGD:
            why = "correction: NESTEROV is for updates of a stage, and with exchange: ASGD the server updates"
            yield Violation(field, why, "leave correction out")
    if parallel.exchange == pb.ParallelParameter.TREE:
        yield refused("goes with exchange: ALLREDUCE, RING or CGDP, not TREE", "", PARALLEL, "exchange")


def violations_of_net(plan: RunPlan, graph: LayerGraph) -> Iterator[Violation]:
    """Yield the layers of a training net that cannot run forward again."""
    parallel = plan.parallel_param
    if parallel.depth == 1 or not parallel.pipeline_param.recompute:
        return
    for node in graph.nodes:
        if not LAYERS[node.type].repeatable:
            yield Violation(
                (PARALLEL, PARAM, "recompute"),
                f"{node.type} does more in a forward pass than to compute its tops, and recompute: true runs it twice",
                "leave recompute out",
                node.name,
                node.spec.origin(),
            )


def ignored_settings(plan: RunPlan) -> Iterator[IgnoredSetting]:
    """Yield the pipeline settings that have no effect."""
    parallel, param = plan.parallel_param, plan.parallel_param.pipeline_param
    name = _Pipeline.Allocator.Name(param.allocator)
    if parallel.depth == 1:
        if plan.given(PARALLEL, PARAM):
            yield IgnoredSetting((PARALLEL, PARAM), "without num_stages above 1")
        return
    if param.schedule == _Pipeline.DELAYED and plan.given(PARALLEL, PARAM, "micro_batches"):
        yield IgnoredSetting(
            (PARALLEL, PARAM, "micro_batches"), "with schedule: DELAYED, which does not divide batches"
        )
    if param.schedule != _Pipeline.DELAYED and param.correction != _Pipeline.NONE:
        yield IgnoredSetting((PARALLEL, PARAM, "correction"), "without schedule: DELAYED: no gradient is late")
    if name in ("BLOCK", "MANUAL"):
        for field in ("partitions", "objective"):
            if plan.given(PARALLEL, PARAM, field):
                yield IgnoredSetting((PARALLEL, PARAM, field), f"with allocator: {name}")
    if name == "MANUAL" and plan.given(PARALLEL, PARAM, "partition_by"):
        yield IgnoredSetting((PARALLEL, PARAM, "partition_by"), f"with allocator: {name}")
    if name != "GABRA" and plan.given(PARALLEL, PARAM, "gabra_param"):
        yield IgnoredSetting((PARALLEL, PARAM, "gabra_param"), f"with allocator: {name}")


def ignored_settings_of_net(plan: RunPlan, graph: LayerGraph) -> Iterator[IgnoredSetting]:
    """Yield the stages that layers name, if the run does not read them."""
    parallel = plan.parallel_param
    staged = parallel.depth > 1
    marked = [node.name for node in graph.nodes if node.spec.param.parallel_param.HasField("stage")]
    if marked and not (staged and parallel.pipeline_param.allocator == _Pipeline.MANUAL):
        why = "without num_stages above 1" if not staged else "without pipeline_param { allocator: MANUAL }"
        words = f'layer "{marked[0]}": parallel_param {{ stage }} has no effect {why}'
        yield IgnoredSetting((PARALLEL, PARAM, "allocator"), why, words)
