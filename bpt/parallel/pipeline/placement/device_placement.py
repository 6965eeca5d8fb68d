"""Allocators by name: from a problem to a placement.

MANUAL, where layers name the stage that runs them, and the errors for devices with too little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bpt.base.errors import LayerError, PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.pipeline.placement.block import ALIKE, best_cut, fastest_cut, genes_of, least_excess
from bpt.parallel.pipeline.placement.exact import best_placement
from bpt.parallel.pipeline.placement.gabra import evolve, good_placement
from bpt.parallel.pipeline.placement.loads import Loads, excess
from bpt.parallel.pipeline.placement.objective import UNFIT, Objective, Profit, StepTime, score
from bpt.parallel.pipeline.placement.partition import check_enough, partitions
from bpt.parallel.pipeline.placement.partition_crossings import Ints
from bpt.parallel.pipeline.placement.problem import Placement, Problem, joined

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import PipelineSpec

MIB = 2**20
FRUGAL = (pb.PipelineParameter.ONE_F_ONE_B, pb.PipelineParameter.SEQUENTIAL)
"""The schedules that may keep fewer blobs alive, and give the curve of one process."""


class InsufficientMemoryError(PrototxtError):
    """An error: no placement was found that fits into the memories of the devices."""


class InsufficientCapacityError(PrototxtError):
    """An error: no placement was found that keeps each device within its capacity.

    Args:
        message: why, with the device.
        stage: its number.
    """

    def __init__(self, message: str, stage: int) -> None:
        self.stage = stage
        super().__init__(message)


def infeasible(loads: Loads, genes: Ints, what: str) -> InsufficientMemoryError | InsufficientCapacityError:
    """Return the error that names the device that lacks most memory or, if none does, most capacity.

    Args:
        genes: (n,) the device of each partition: the placement that comes nearest to fitting.
        what: how the message begins.
    """
    held = loads.memory_of(genes[None])[0]
    lack = excess(held, loads.memory)
    device = int(lack.argmax())
    if not lack[device]:
        return _beyond_capacity(loads, genes, what)
    schedules = _frugal(loads, genes)
    more = "" if (genes == device).sum() == 1 else "more stages, "  # what stays together cannot be spread
    return InsufficientMemoryError(
        f"{what}: device {loads.problem.devices[device].name} (stage {device}) lacks {_mib(lack[device])} of memory: "
        f"its layers need {_mib(held[device])}, it has {_mib(loads.memory[device])}; take "
        f"{f'schedule: {schedules}, ' if schedules else ''}{more}smaller batches or a device with more memory"
    )


def _beyond_capacity(loads: Loads, genes: Ints, what: str) -> InsufficientCapacityError:
    beyond = loads.excess_work(genes[None])[0]
    device = int(beyond.argmax())
    assert beyond[device] > 0, beyond
    work = loads.work.sum()
    share = float(loads.work[genes == device].sum() / work)
    mine = loads.capacity[device] / work
    several = (genes == device).sum() > 1
    remedy = "" if several else ", cut the net into smaller partitions"
    return InsufficientCapacityError(
        f"{what} (Eq. 6): {_device(loads.problem, device)} (stage {device}) would get {share:.2%} of the "
        f"net's work, its capacity is {mine:.2%}; give this device or others more capacity{remedy}, or take more "
        "stages",
        device,
    )


def _frugal(loads: Loads, genes: Ints) -> str:
    """Return the schedules under which the placement would fit: ``ONE_F_ONE_B or SEQUENTIAL``."""
    problem = loads.problem
    if problem.rule == pb.PipelineParameter.DELAYED:  # chosen for its curve
        return ""

    def fits(rule: int) -> bool:
        held = Loads(replace(problem, rule=rule), loads.starts).memory_of(genes[None])[0]
        return not excess(held, loads.memory).any()

    names = [pb.PipelineParameter.Schedule.Name(rule) for rule in FRUGAL if fits(rule)]
    return " or ".join(names)


def _mib(size: float) -> str:
    return f"{size / MIB:,.1f} MiB" if size >= 0.1 * MIB else f"{size:,.0f} bytes"


FIELD = "parallel_param { stage }"


def by_hand(problem: Problem, marks: Sequence[int | None]) -> Placement:
    """Place each layer on the stage that it names, or on that of the layer before it; the first ones on stage 0.

    Args:
        marks: one a layer: the stage that it names, or ``None``. Layers without bottoms run on stage 0 in any case;
            what they name counts for the layers behind them.

    Raises:
        LayerError: a stage that there is not, or layers that must stay together on several stages.
        PrototxtError: a stage has no layers, or a device too little memory or capacity.
    """
    assert len(marks) == len(problem.costs), (len(marks), len(problem.costs))
    m = len(problem.devices)
    for layer, mark in enumerate(marks):
        if mark is not None and not 0 <= mark < m:
            raise LayerError(
                problem.costs[layer].name, f"{FIELD}: there is no stage {mark}; the stages are 0 to {m - 1}"
            )
    stages: list[int] = []
    for mark in marks:
        before = stages[-1] if stages else 0
        stages.append(before if mark is None else mark)
    _skip_sources(problem, stages)
    for start, end in problem.together:
        _check_together(problem, stages, start, end, "whose parameters or blobs it shares")
    for start, end in problem.blocks:
        _check_together(problem, stages, start, end, "with which it is of a block")
    for start, end in problem.beside_sources:
        _check_together(problem, stages, start, end, "since data layers stay with the first layer that computes")
    empty = sorted(set(range(m)) - set(stages))
    if empty:
        used = len(set(stages))
        others = f"or set num_stages: {used}" if empty[0] == used else f"or number the stages from 0 to {used - 1}"
        raise PrototxtError(
            f"no layer runs on stage {empty[0]} ({_device(problem, empty[0])}); let one name it, "
            f"parallel_param {{ stage: {empty[0]} }}, {others}"
        )
    starts, devices = joined(range(len(stages)), stages)
    loads = Loads(problem, starts)
    genes = np.array(devices, dtype=np.int64)
    if excess(loads.memory_of(genes[None])[0], loads.memory).any() or loads.excess_work(genes[None]).any():
        raise infeasible(loads, genes, "the stages that the layers name do not fit")
    return Placement(starts, devices)


def _device(problem: Problem, stage: int) -> str:
    name = problem.devices[stage].name
    return name if name.startswith("device") else f"device {name}"


def _skip_sources(problem: Problem, stages: list[int]) -> None:
    """Move layers without bottoms to the run of the layer before them; the first ones to the one behind."""
    sources = set(problem.sources)
    first = next((layer for layer in range(len(stages)) if layer not in sources), 0)
    stages[:first] = [stages[first]] * first
    for layer in range(first + 1, len(stages)):
        if layer in sources:
            stages[layer] = stages[layer - 1]


def _check_together(problem: Problem, stages: Sequence[int], start: int, end: int, why: str) -> None:
    for layer in range(start + 1, end):
        if stages[layer] != stages[start]:
            raise LayerError(
                problem.costs[layer].name,
                f'{FIELD}: it must run on the same stage as layer "{problem.costs[start].name}", {why}; '
                f"that one is on stage {stages[start]}, this one on {stages[layer]}",
            )


Param = pb.PipelineParameter
FINALISTS = 8  # of GABRA, that the clock decides between; fewer, if they have together more than
PLAYED = 4096  # partitions times micro-batches


def allocate(
    problem: Problem,
    param: PipelineSpec,
    manual: Sequence[int | None] = (),
    clock: Callable[[Placement], float] | None = None,
) -> Placement:
    """Place a net on the problem's devices, so that each has some layers and none exceeds its memory.

    Nor does any get more work than its capacity, where that is given: Eq. 6 of the Hybrid paper, under all objectives.

    ``StepTime`` does not know what a micro-batch waits for where a device has several runs of layers. So with a
    ``clock``, it has the last word for GABRA and EXACT under STEP_TIME: the best of GABRA's last population (eight,
    fewer in large cases) or EXACT's optimum, and BLOCK's placement are played. Of those that take at most ``ALIKE``
    more than the fastest, the one that fills memory most evenly is taken, as BLOCK chooses (``best_cut``). PROFIT is as
    printed.

    Args:
        param: its ``allocator`` chooses; ``objective``, ``partitions`` and ``gabra_param`` are for GABRA and EXACT.
        manual: for MANUAL: the stage that each layer names, or ``None``.
        clock: tells the seconds of an iteration with a placement.

    Raises:
        PrototxtError: more stages than partitions, no placement fits into the devices' memory and capacities (the
            message names a device and what it lacks), a number out of range, or an allocator that cannot do what is
            asked of it.
    """
    match param.allocator:
        case Param.MANUAL:
            return by_hand(problem, manual)
        case Param.BLOCK:
            return _block(problem)
    name = Param.Allocator.Name(param.allocator)
    loads = _divided(problem, param.partitions)
    search = _exact if param.allocator == Param.EXACT else _gabra
    start = good_placement(loads)
    found: _Found = start[None], ()
    if param.objective == Param.STEP_TIME or not _fits(loads, start):
        found = search(StepTime(loads), start, param)
    best = found[0][0]
    if not _fits(loads, best):
        raise infeasible(loads, best, f"allocator: {name} finds no placement that fits")
    if param.objective == Param.PROFIT:
        found = search(Profit(loads, best), best, param)
    finalists, convergence = found
    placements = [Placement(loads.starts, tuple(genes), convergence) for genes in finalists.tolist()]
    if clock is None or param.objective == Param.PROFIT:
        return placements[0]
    most = max(1, min(FINALISTS, PLAYED // (loads.n * problem.micro_batches)))
    return _best([*placements[:most], *_cut(problem, convergence)], problem, clock)


def _divided(problem: Problem, count: int) -> Loads:
    """Return the partitions; by rule (``count`` 0), with BLOCK's borders where memory or capacity is scarce.

    For if either must be filled to the brim, what is joined may be too coarse: no placement of it is then as good as
    BLOCK's, or none fits at all.
    """
    loads = Loads(problem, partitions(problem, count))
    if count or (loads.always_fits and not loads.has_capacities):
        return loads
    every = Loads(problem, problem.cuts)
    cut = fastest_cut(every)
    return loads if cut is None else Loads(problem, sorted({*loads.starts, *(every.starts[start] for start in cut)}))


def _best(placements: Sequence[Placement], problem: Problem, clock: Callable[[Placement], float]) -> Placement:
    """Return, of those about as fast as the fastest, the one with the most evenly filled memory.

    Under DELAYED before that the one whose path is shortest: each block behind a layer makes its gradients older.
    """
    seconds = [clock(placement) for placement in placements]
    limit = min(seconds) + ALIKE * abs(min(seconds))

    def filled(index: int) -> tuple[int, float, float, float]:
        placement = placements[index]
        fills = Loads(problem, placement.starts).memory_shares(np.array([placement.stages], dtype=np.int64))
        late = len(joined(placement.starts, placement.stages)[0]) if problem.rule == Param.DELAYED else 0
        return late, float(fills.max()), -float(fills.min()), seconds[index]

    return placements[min((i for i, time in enumerate(seconds) if time <= limit), key=filled)]


_Found: TypeAlias = tuple[Ints, tuple[float, ...]]  # chromosomes (K, n), the best first, and how GABRA converged


def _gabra(objective: Objective, start: Ints, param: PipelineSpec) -> _Found:
    evolution = evolve(objective, start, param.gabra_param)
    return evolution.finalists, evolution.convergence


def _exact(objective: Objective, start: Ints, param: PipelineSpec) -> _Found:
    return best_placement(objective, start)[None], ()


def _fits(loads: Loads, genes: Ints) -> bool:
    return float(score(StepTime(loads), genes[None])[0]) < UNFIT


def _block(problem: Problem) -> Placement:
    check_enough(problem)
    for placement in _cut(problem):
        return placement
    loads = Loads(problem, problem.cuts)
    nearest = np.array(genes_of(least_excess(loads), loads.n))
    raise infeasible(loads, nearest, "allocator: BLOCK finds no cut that fits")


def _cut(problem: Problem, convergence: tuple[float, ...] = ()) -> list[Placement]:
    """Return BLOCK's placement, if one fits."""
    loads = Loads(problem, problem.cuts)
    cut = best_cut(loads)
    if cut is None:
        return []
    return [Placement(tuple(loads.starts[start] for start in cut), tuple(range(loads.m)), convergence)]
