"""What ``bpt plan`` does: places a solver's training net on devices, and says how an iteration goes then."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from bpt.errors import PrototxtError
from bpt.exchange import exchange_rules
from bpt.graph.spec import Shape
from bpt.layers.base import batch_of
from bpt.net_graph import build_graph_of
from bpt.placement.allocate import allocate
from bpt.placement.problem import Device, Placement, Problem
from bpt.plan.dividing import violations_in_training
from bpt.plan.spec import PipelineSpec, RunPlan
from bpt.plan.stage_placement import place
from bpt.plan.violations import violations
from bpt.planner.plan_report import Alone, Outlook, Plan, outlook
from bpt.predict.costs_file import MeasuredCosts
from bpt.predict.measured_costs import read_costs_of
from bpt.predict.pipeline_clock import Clock
from bpt.proto import bpt_pb2 as pb
from bpt.schedule.pipeline import pipeline_rules
from bpt.simulate.simulation_net import without_data
from bpt.violation import refuse

_Pipeline = pb.PipelineParameter
_BLOCK = PipelineSpec(allocator=_Pipeline.BLOCK)
OBJECTIVES: dict[int, str] = {_Pipeline.STEP_TIME: "step ms", _Pipeline.PROFIT: "profit"}
"""What GABRA's convergence shows."""


def plan_solver(run: RunPlan, shape: Shape = ()) -> Plan:
    """Place the training net on ``num_stages`` devices as ``pipeline_param`` says, and see how an iteration goes.

    Args:
        shape: of a sample; the data set is not opened then. (): that of the data.

    Raises:
        PrototxtError, FileError: the solver, its net, its devices or costs are wrong, or the net does not fit them.
    """
    refuse(run, violations(run.standalone()))
    refuse(run, (*pipeline_rules.violations_in_pipeline(run), *exchange_rules.violations(run)))
    parallel = run.parallel_param
    param, passes = parallel.pipeline_param, run.optim.iter_size
    graph = build_graph_of(without_data(run.train, shape) if shape else run.train)
    if parallel.num_stages > 1:
        refuse(run, violations_in_training(run, graph))
    costs = read_costs_of(run, graph)
    problem, placement = place(run, graph)
    update = 0.0 if costs is None else costs.update
    clock = Clock(graph, problem, passes, update, run.precision)

    def seen(placement: Placement) -> Outlook:
        return outlook(clock, placement.starts, placement.stages)

    return Plan(
        graph,
        problem,
        run.precision,
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
        remarks=tuple(map(str, (*pipeline_rules.unused_of_net(run, graph), *pipeline_rules.unused(run)))),
    )


def rehearse(run: RunPlan) -> None:
    """Refuse what ``plan_solver`` would refuse once costs are measured; better before a long measurement than after it.

    Raises:
        PrototxtError, FileError: as ``plan_solver``.
    """
    plan_solver(run.with_pipeline(costs=""))  # they may be what is about to be written


def measured_on(costs: MeasuredCosts, micro_batches: int) -> str:
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
