"""Places a solver's training net on devices, and forecasts an iteration; ``bpt plan``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from bpt.base.errors import PrototxtError
from bpt.base.violation import refuse
from bpt.config.plan.run_plan import PipelineSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Shape
from bpt.nn.layers.base import batch_of
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.divisible_batches import violations_in_training
from bpt.parallel.cluster.costs_file import MeasuredCosts
from bpt.parallel.cluster.measured_costs import read_costs_of
from bpt.parallel.exchange import exchange_rules
from bpt.parallel.pipeline import pipeline_rules
from bpt.parallel.pipeline.pipeline_clock import Clock
from bpt.parallel.pipeline.placement.device_placement import allocate
from bpt.parallel.pipeline.placement.problem import Device, Placement, Problem
from bpt.parallel.pipeline.stage_placement import place
from bpt.perf.planner.plan_report import BestSingleDevice, PlacementForecast, PlacementPlan, forecast_placement
from bpt.perf.simulate.simulation_net import without_data
from bpt.train.rules.violations import violations

_Pipeline = pb.PipelineParameter
_BLOCK = PipelineSpec(allocator=_Pipeline.BLOCK)
OBJECTIVES: dict[int, str] = {_Pipeline.STEP_TIME: "step ms", _Pipeline.PROFIT: "profit"}
"""The unit of GABRA's objective, in words."""


def plan_solver(run: RunPlan, shape: Shape = ()) -> PlacementPlan:
    """Place the training net on ``num_stages`` devices as ``pipeline_param`` says, and forecast an iteration.

    Args:
        shape: the shape of a sample, which replaces the data set; empty: that of the data.

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

    def forecast(placement: Placement) -> PlacementForecast:
        return forecast_placement(clock, placement.starts, placement.stages)

    return PlacementPlan(
        graph,
        problem,
        run.precision,
        allocator=_Pipeline.Allocator.Name(param.allocator),
        schedule=_Pipeline.Schedule.Name(param.schedule),
        batch=batch_of(graph),
        passes=passes,
        measured="" if costs is None else measured_on(costs, problem.micro_batches),
        described=bool(param.devices),
        chosen=forecast(placement),
        even=forecast(even_split(problem)),
        alone=best_single_device(problem, passes, update),
        block=None if param.allocator == _Pipeline.BLOCK else forecast_block(problem, forecast),
        convergence=tuple(enumerate(in_units_of(placement.convergence, param.objective))),
        objective=OBJECTIVES[param.objective],
        remarks=tuple(
            map(str, (*pipeline_rules.ignored_settings_of_net(run, graph), *pipeline_rules.ignored_settings(run)))
        ),
    )


def rehearse(run: RunPlan) -> None:
    """Raise the errors of ``plan_solver`` before a long measurement of costs, instead of after it.

    Raises:
        PrototxtError, FileError: as in ``plan_solver``.
    """
    plan_solver(run.with_pipeline(costs=""))  # the measurement may write this file, so it need not exist yet


def measured_on(costs: MeasuredCosts, micro_batches: int) -> str:
    """Return the machine of the measurement, and its micro-batches if they differ from the plan's."""
    if costs.micro_batches == micro_batches:
        return costs.machine
    return f"{costs.machine}, in {costs.micro_batches} micro-batch{'es' * (costs.micro_batches != 1)}"


def in_units_of(fitness: Sequence[float], objective: int) -> list[float]:
    """Return the fitness of chromosomes in the units of OBJECTIVES: under STEP_TIME it is 1 / seconds."""
    return list(fitness) if objective == _Pipeline.PROFIT else [1e3 / value for value in fitness]


def forecast_block(problem: Problem, forecast: Callable[[Placement], PlacementForecast]) -> PlacementForecast | None:
    """Return the forecast of BLOCK's placement, or ``None`` if BLOCK finds none; other allocators still may."""
    try:
        return forecast(allocate(problem, _BLOCK))
    except PrototxtError:
        return None


def even_split(problem: Problem) -> Placement:
    """Return the placement of BLOCK on the same number of equal devices."""
    speed = math.fsum(device.speed for device in problem.devices) / len(problem.devices)
    equal = replace(problem, devices=tuple(Device(device.name, speed) for device in problem.devices))
    return allocate(equal, _BLOCK)


def best_single_device(problem: Problem, passes: int, update: float) -> BestSingleDevice:
    """Return the fastest device with the whole net."""
    number = max(range(len(problem.devices)), key=lambda index: problem.devices[index].speed)
    device = problem.devices[number]
    needed = sum(cost.parameters + cost.activations for cost in problem.costs)
    return BestSingleDevice(number, (passes * problem.work + update) / device.speed, needed <= device.memory)
