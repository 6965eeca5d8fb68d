"""Decides which stage runs which layers of a run's nets, as ``pipeline_param`` says."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bpt.base.errors import LayerError, PrototxtError
from bpt.base.log import plural
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rules import num_moments
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.stages import layer_stages
from bpt.graph.staging import Staging
from bpt.nn.layers import LAYERS
from bpt.parallel.balance.divisible_batches import gathering
from bpt.parallel.cluster.measured_costs import PATH, error_of_file, measured_costs
from bpt.parallel.pipeline.devices import devices_of
from bpt.parallel.pipeline.pipeline_clock import clock_of
from bpt.parallel.pipeline.placement.device_placement import (
    InsufficientCapacityError,
    InsufficientMemoryError,
    allocate,
)
from bpt.parallel.pipeline.placement.loads import idle_stages
from bpt.parallel.pipeline.placement.partition import PartitionsError, TooManyStagesError, check_enough
from bpt.parallel.pipeline.placement.problem import Device, DeviceLink, Placement, Problem, problem_of

LOG = logging.getLogger("bpt")
DELAYED = pb.PipelineParameter.DELAYED


def stage(plan: RunPlan, graph: LayerGraph, replicas: int = 1, warn: bool = True) -> Staging | None:
    """Return the Stage of this rank; ``None`` if the run has one stage, which runs everything.

    A stage with next to no work is warned of in the log.

    Args:
        replicas: as for ``place``.
        warn: of such stages.

    Raises:
        PrototxtError: the net cannot be placed on ``num_stages`` devices, or not in micro-batches.
        FileError: that of the devices or of the costs is missing or damaged.
    """
    parallel = plan.parallel_param
    if parallel.num_stages == 1:
        return None
    param = parallel.pipeline_param
    cuts = (1,) if param.schedule == DELAYED else (param.micro_batches,)
    problem, placement = place(plan, graph, replicas)
    for remark in idle_stages(problem, placement.starts, placement.stages) if warn else ():
        LOG.warning("Pipeline: %s", remark)
    of_layers = layer_stages(graph, placement.starts, placement.stages)
    return Staging(tuple(node.name for node in graph.nodes), of_layers, problem.rule, cuts, problem.gathers)


def stage_kinds(plan: RunPlan, graph: LayerGraph, layout: ReplicaLayout, warn: bool = True) -> tuple[Staging, ...]:
    """Return the staging of each kind of replica of a layout; empty if no replica has stages.

    A replica of one stage runs its share at once, unless layers normalise by micro-batches: then as the others do.

    Args:
        warn: as for ``stage``.

    Raises:
        PrototxtError, FileError: as for ``stage``.
    """
    if layout.depth == 1:
        return ()
    pipelines = [
        stage(plan.with_parallel(num_stages=stages, replica=()), graph, layout.replicas, warn)
        for stages in layout.kinds
        if stages > 1
    ]
    made = [staging for staging in pipelines if staging]
    if 1 in layout.kinds:
        by_micro_batch = plan.parallel_param.pipeline_param.batch_norm_over == pb.PipelineParameter.MICRO_BATCH and any(
            LAYERS[node.type].normalises_by_batch(node.spec) for node in graph.nodes
        )
        made.insert(0, Staging.alone(graph, made[0].cuts if by_micro_batch else (1,), made[0].gathers))
    if len(made) == 1:
        return tuple(made)
    of_kinds = tuple(staging.of_layers for staging in made)
    return tuple(replace(staging, of_kinds=of_kinds) for staging in made)


def check_stage_count(plan: RunPlan, graph: LayerGraph) -> None:
    """Raise an error if the training net cannot be cut into as many stages as the deepest replica has.

    Raises:
        TooManyStagesError: at what says how many stages there are.
    """
    devices = [Device(f"device {stage}") for stage in range(plan.parallel_param.depth)]
    try:
        check_enough(problem_of(graph, devices, DeviceLink(), plan.parallel_param.pipeline_param, plan.precision))
    except TooManyStagesError as error:
        raise _at_count(error, plan) from None


def _at_count(error: TooManyStagesError, plan: RunPlan) -> TooManyStagesError:
    """Return the error at what says how many stages there are: ``num_stages``, or the file of devices."""
    counted = ("parallel_param", "num_stages")
    devices_named = counted not in plan.origins and plan.parallel_param.pipeline_param.devices
    return error.at(plan.origin(*((*PATH, "devices") if devices_named else counted)))


def place(plan: RunPlan, graph: LayerGraph, replicas: int = 1) -> tuple[Problem, Placement]:
    """Return the placement that ``pipeline_param``'s allocator makes of the training net, and its problem.

    Args:
        replicas: how many pipelines there are. They divide the net's batch, unless ``batch_scope`` is REPLICA.

    Raises:
        TooManyStagesError: at what says how many stages there are.
        PrototxtError, FileError: as for ``stage``; of too little memory or capacity, it names the file of devices.
    """
    parallel = plan.parallel_param
    param = parallel.pipeline_param
    devices, link = devices_of(plan, graph, parallel.num_stages)
    moments = num_moments(plan.optim)
    shares = 1 if parallel.batch_scope == pb.ParallelParameter.REPLICA else replicas
    costs, passes = measured_costs(plan, graph), plan.optim.iter_size
    gathers = gathering(graph, param)
    problem = problem_of(
        graph, devices, link, param, plan.precision, costs, moments, passes=passes, replicas=shares, gathers=gathers
    )
    try:
        return problem, allocate(problem, param, manual_stages(graph), clock_of(plan, graph, problem))
    except LayerError as error:
        spec = graph.nodes[graph.index_of[error.layer]].spec
        raise spec.error(error.why, "parallel_param", "stage") from None
    except TooManyStagesError as error:
        raise _at_count(error, plan) from None
    except InsufficientCapacityError as error:
        if param.capacity:
            raise PrototxtError(f"pipeline_param: {error}", plan.origin(*PATH, "capacity", error.stage)) from None
        raise error_of_file(plan, "devices", param.devices, str(error)) from None
    except InsufficientMemoryError as error:  # only a file of devices limits memory
        raise error_of_file(plan, "devices", param.devices, str(error)) from None
    except PrototxtError as error:  # it has no place
        field = "partitions" if isinstance(error, PartitionsError) else "allocator"
        raise PrototxtError(f"pipeline_param: {error}", plan.origin(*PATH, field)) from None


def manual_stages(graph: LayerGraph) -> list[int | None]:
    """Return the stage that each layer's text names."""
    params = (node.spec.param.parallel_param for node in graph.nodes)
    return [param.stage if param.HasField("stage") else None for param in params]


def described(staging: Staging, devices: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each stage with its layers, and one for what the log shows late."""
    for of_layers in staging.of_kinds or (staging.of_layers,):
        depth = max(of_layers) + 1
        where = f"Replicas of {plural(depth, 'stage')}: " if staging.of_kinds else ""
        for number in range(depth):
            names = [name for name, stage in zip(staging.layers, of_layers, strict=True) if stage == number]
            device = f" ({devices[number]})" if devices else ""
            layers = f"{plural(len(names), 'layer')}, {names[0]} … {names[-1]}"
            yield f"{where}Stage {number}{device}: {layers if len(names) > 1 else f'layer {names[0]}'}"
    if staging.rule == DELAYED and (late := max(staging.of_layers)):
        yield f"Losses and outputs are shown {late} iteration{'s' * (late != 1)} late: no stage waits for them"
