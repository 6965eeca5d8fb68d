"""What ``bpt plan`` does: places a solver's training net on devices, and says how an iteration goes then."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from bpt.errors import PrototxtError
from bpt.graph.spec import Shape
from bpt.layers.batch_size import batch_of
from bpt.placement.allocate import allocate
from bpt.placement.problem import Device, Placement, Problem
from bpt.plan.dividing import check_training
from bpt.plan.nets import train_plan
from bpt.plan.pipeline_rules import check_pipeline, without_effect
from bpt.plan.solver_rules import check_solver
from bpt.plan.stage_placement import DELAYED, check_micro_batches, place
from bpt.planner.plan_report import Alone, Outlook, Plan, outlook
from bpt.precision import precision_of
from bpt.predict.costs_file import Costs
from bpt.predict.measured_costs import read_costs_of
from bpt.predict.pipeline_clock import Clock
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource
from bpt.server.legality import apart
from bpt.simulate.simulation_net import without_data

_Pipeline = pb.PipelineParameter
_BLOCK = pb.PipelineParameter(allocator=_Pipeline.BLOCK)
OBJECTIVES = {_Pipeline.STEP_TIME: "step ms", _Pipeline.PROFIT: "profit"}
"""What GABRA's convergence shows."""


def plan_solver(source: SolverSource, shape: Shape = ()) -> Plan:
    """Place the training net on ``num_stages`` devices as ``pipeline_param`` says, and see how an iteration goes.

    Args:
        shape: of a sample; the data set is not opened then. (): that of the data.

    Raises:
        PrototxtError, FileError: the solver, its net, its devices or costs are wrong, or the net does not fit them.
    """
    check_solver(apart(source), writes=False)
    check_pipeline(source)
    parallel = source.param.parallel_param
    param, passes = parallel.pipeline_param, source.param.iter_size
    plan = train_plan(source)
    graph = (without_data(plan, shape) if shape else plan).graph()
    if parallel.num_stages > 1:
        check_training(graph, parallel)
    if param.micro_batches > 1 and param.schedule != DELAYED:
        check_micro_batches(graph, parallel.sync_batch_norm)
    costs = read_costs_of(source, graph)
    problem, placement = place(source, graph)
    update, precision = 0.0 if costs is None else costs.update, precision_of(source.param)
    clock = Clock(graph, problem, passes, update, precision)

    def seen(placement: Placement) -> Outlook:
        return outlook(clock, placement.starts, placement.stages)

    return Plan(
        graph,
        problem,
        precision,
        allocator=_Pipeline.Allocator.Name(param.allocator),
        schedule=_Pipeline.Schedule.Name(param.schedule),
        batch=batch_of(graph),
        passes=passes,
        measured="" if costs is None else measured_on(costs, problem.micro_batches),
        described=bool(param.devices),
        chosen=seen(placement),
        even=seen(even_split(problem)),
        alone=alone(problem, passes, update),
        block=None if param.allocator == _Pipeline.BLOCK else seen_block(problem, seen),
        convergence=tuple(enumerate(shown(placement.convergence, param.objective))),
        objective=OBJECTIVES[param.objective],
        remarks=tuple(f"parallel_param: {remark}" for remark in without_effect(parallel, graph)),
    )


def rehearse(source: SolverSource) -> None:
    """Refuse what ``plan_solver`` would refuse once costs are measured; better before a long measurement than after it.

    Raises:
        PrototxtError, FileError: as ``plan_solver``.
    """
    param = pb.SolverParameter()
    param.CopyFrom(source.param)
    param.parallel_param.pipeline_param.ClearField("costs")  # it may be what is about to be written
    plan_solver(replace(source, param=param))


def measured_on(costs: Costs, micro_batches: int) -> str:
    """The machine and, if the batch travels in others, the micro-batches of the measurement."""
    if costs.micro_batches == micro_batches:
        return costs.machine
    return f"{costs.machine}, in {costs.micro_batches} micro-batch{'es' * (costs.micro_batches != 1)}"


def shown(fitness: Sequence[float], objective: int) -> list[float]:
    """The fitness of chromosomes in the units of OBJECTIVES: under STEP_TIME it is 1 / seconds."""
    return list(fitness) if objective == _Pipeline.PROFIT else [1e3 / value for value in fitness]


def seen_block(problem: Problem, seen: Callable[[Placement], Outlook]) -> Outlook | None:
    """What becomes of BLOCK's placement; ``None``: none fits, where allocators with more freedom may find one."""
    try:
        return seen(allocate(problem, _BLOCK))
    except PrototxtError:
        return None


def even_split(problem: Problem) -> Placement:
    """What BLOCK finds if nothing is known of the devices but their number."""
    speed = math.fsum(device.speed for device in problem.devices) / len(problem.devices)
    alike = replace(problem, devices=tuple(Device(device.name, speed) for device in problem.devices))
    return allocate(alike, _BLOCK)


def alone(problem: Problem, passes: int, update: float) -> Alone:
    """The fastest device with the whole net."""
    number = max(range(len(problem.devices)), key=lambda index: problem.devices[index].speed)
    device = problem.devices[number]
    needed = sum(cost.parameters + cost.activations for cost in problem.costs)
    return Alone(number, (passes * problem.work + update) / device.speed, needed <= device.memory)
