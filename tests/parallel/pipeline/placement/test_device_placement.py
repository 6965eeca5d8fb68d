"""Allocators by name, and MANUAL."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from bpt.base.errors import LayerError, PrototxtError
from bpt.config.plan.run_plan import GabraSpec, PipelineSpec
from bpt.parallel.pipeline.placement.device_placement import allocate
from bpt.parallel.pipeline.placement.partition import partitions
from bpt.parallel.pipeline.placement.problem import Device, DeviceLink, Placement, Problem, joined
from tests.parallel.pipeline.placement.problems import (
    Param,
    capped,
    chain,
    fits,
    random_problem,
    stages_of,
    step_time,
    uneven,
    working,
)

BOTH = [Param.GABRA, Param.EXACT]
ALL = [Param.BLOCK, *BOTH]
QUICK = GabraSpec(generations=64)


def param(allocator: int, **more: Any) -> PipelineSpec:
    return PipelineSpec(allocator=allocator, gabra_param=QUICK, **more)


def test_block_keeps_the_order_of_the_devices() -> None:
    devices = [Device("slow", 1), Device("fast", 3)]
    assert allocate(chain([2, 3, 3], devices), PipelineSpec()) == Placement((0, 1), (0, 1))


def test_block_prefers_less_work_for_the_slow() -> None:
    # The last layer takes 12 s in any case. Of the cuts before it the one that takes least in sum gives the slow device
    # no more than it must have.
    devices = [Device("slow", 0.5), Device("fast", 1), Device("faster", 1)]
    assert allocate(chain([1, 1, 1, 12], devices), PipelineSpec()).starts == (0, 1, 3)


@pytest.mark.parametrize("allocator", BOTH)
def test_partitions_go_where_they_are_done_first(allocator: int) -> None:
    devices = [Device("slow", 1), Device("fast", 3)]
    problem = chain(
        [3, 1, 2, 6], devices, micro_batches=64
    )  # 12 in all over 4: 3 s, if the slow one has the first or the next two
    placement = allocate(problem, param(allocator, partitions=4))
    assert placement.starts == (0, 1, 2, 3)
    assert working(problem, placement.stages) == [3, 3]


@pytest.mark.parametrize("allocator", ALL)
@pytest.mark.parametrize("objective", [Param.STEP_TIME, Param.PROFIT])
def test_what_lacks_memory_is_named(allocator: int, objective: int) -> None:
    # 20 bytes a layer, and 8 for a blob that is received: not by the first layer, which BLOCK keeps on the first.
    devices = [Device("gpu-a"), Device("gpu-b"), Device("gpu-c", memory=19)]
    need = 28 if allocator == Param.BLOCK else 20
    message = rf"device gpu-c \(stage 2\) lacks {need - 19} bytes of memory: .*need {need} bytes, it has 19 bytes"
    with pytest.raises(PrototxtError, match=message):
        allocate(chain([1, 1, 1], devices), param(allocator, objective=objective))


def placed(problem: Problem, param: PipelineSpec) -> Placement | str:
    """What ``allocate`` gives, or its error's message."""
    try:
        return allocate(problem, param)
    except PrototxtError as error:
        return str(error)


@pytest.mark.parametrize(
    ("rule", "micro_batches", "memory", "remedy"),
    [
        (Param.GPIPE, 4, 17, "take schedule: ONE_F_ONE_B or SEQUENTIAL, smaller"),
        (Param.GPIPE, 4, 15, "take schedule: SEQUENTIAL, smaller"),
        (Param.ONE_F_ONE_B, 4, 15, "take schedule: SEQUENTIAL, smaller"),
        (Param.GPIPE, 4, 13, "take smaller"),
        (Param.SEQUENTIAL, 4, 13, "take smaller"),
        (Param.GPIPE, 1, 19, "take smaller"),
        (Param.DELAYED, 1, 27, "take smaller"),
    ],
)
def test_what_helps_is_named(rule: int, micro_batches: int, memory: int, remedy: str) -> None:
    """The one layer of stage 0 has 12 bytes of parameters, and blobs of 8 bytes: all, half or a quarter are alive."""
    devices = [Device("a", memory=memory), Device("b")]
    with pytest.raises(PrototxtError, match=f"; {remedy} batches or a device with more memory$"):
        allocate(chain([1, 1, 1], devices, rule=rule, micro_batches=micro_batches), param(Param.BLOCK))


def test_more_stages_help_where_a_stage_has_several_layers() -> None:
    with pytest.raises(PrototxtError, match=r"; take more stages, smaller batches or a device with more memory$"):
        allocate(chain([1, 1, 1], [Device("a", memory=21), Device("b", memory=21)]), param(Param.BLOCK))


@pytest.mark.parametrize("allocator", ALL)
@pytest.mark.parametrize("rule", [Param.GPIPE, Param.ONE_F_ONE_B])
@pytest.mark.parametrize("objective", [Param.STEP_TIME, Param.PROFIT])
def test_scarce_memory(allocator: int, rule: int, objective: int) -> None:
    solved = failed = 0
    for seed in range(12):
        problem = random_problem(seed, 8, 3, True, rule)
        placement = placed(problem, param(allocator, objective=objective, partitions=len(problem.cuts)))
        if isinstance(placement, str):
            assert re.search(r"device d\d \(stage \d\) lacks \d+ bytes", placement)
            failed += 1
        else:
            stages = stages_of(placement, len(problem.costs))
            assert fits(problem, stages) and set(stages) == {0, 1, 2}
            solved += 1
    assert solved > 4 and failed


@pytest.mark.parametrize("allocator", ALL)
@pytest.mark.parametrize("objective", [Param.STEP_TIME, Param.PROFIT])
def test_capacities(allocator: int, objective: int) -> None:
    """Eq. 6, under all objectives. BLOCK is never refused what the others find in its order."""
    solved = failed = 0
    for seed in range(12):
        problem = capped(random_problem(seed, 8, 3), seed)
        placement = placed(problem, param(allocator, objective=objective, partitions=len(problem.cuts)))
        if isinstance(placement, str):
            assert re.search(r"\(Eq\. 6\): device d\d \(stage \d\) would get [\d.]+% .* its capacity is", placement)
            failed += 1
        else:
            assert fits(problem, stages_of(placement, len(problem.costs)))
            solved += 1
    assert solved > 4 and (failed or allocator != Param.BLOCK)


def test_what_lacks_capacity_is_named() -> None:
    """6 of 9 on either device; the message says so, of each allocator."""
    devices = [Device("a", capacity=0.7), Device("b", 4, capacity=0.6)]
    problem = chain([1, 2, 6], devices)
    want = (
        r"device b \(stage 1\) would get 66\.67% of the net's work, its capacity is 60\.00%; give this device or others"
    )
    with pytest.raises(PrototxtError, match="BLOCK finds no cut that fits .*" + want):
        allocate(problem, param(Param.BLOCK))
    with pytest.raises(PrototxtError, match="the stages that the layers name do not fit .*" + want):
        allocate(problem, param(Param.MANUAL), [0, 0, 1])
    for allocator in BOTH:  # they may give the heavy layer to the other one
        assert allocate(problem, param(allocator, partitions=3)).stages == (1, 1, 0)


@pytest.mark.parametrize("allocator", BOTH)
def test_block_is_no_better_where_memory_is_scarce(allocator: int) -> None:
    """All light layers are one partition by rule, of 180 bytes: too much for any device."""
    problem = chain([10, *[0.01] * 9], [Device("a", memory=120), Device("b", memory=120)])
    assert partitions(problem) == (0, 1)
    block, found = (stages_of(allocate(problem, param(by)), 10) for by in (Param.BLOCK, allocator))
    assert fits(problem, found)
    assert step_time(problem, found) <= step_time(problem, block)
    with pytest.raises(PrototxtError, match="lacks"):
        allocate(problem, param(allocator, partitions=2))  # as asked


@pytest.mark.parametrize("allocator", ALL)
def test_more_stages_than_partitions(allocator: int) -> None:
    with pytest.raises(PrototxtError, match=r"are to be 3; set num_stages: 2 or less"):
        allocate(chain([1, 1], [Device(str(i)) for i in range(3)]), param(allocator))


@pytest.mark.parametrize("allocator", ALL)
def test_one_device(allocator: int) -> None:
    placement = allocate(chain([1, 2, 3], [Device("only")]), param(allocator))
    assert set(placement.stages) == {0}


@pytest.mark.parametrize("allocator", BOTH)
def test_delayed_layers_lie_anywhere(allocator: int) -> None:
    """No cut into two runs is even: 3 | 3 1 1 or 3 3 | 1 1."""
    problem = chain([3, 3, 1, 1], [Device("a"), Device("b")], rule=Param.DELAYED)
    found = allocate(problem, param(allocator, partitions=4))
    assert working(problem, stages_of(found, 4)) == [4.0, 4.0]
    assert working(problem, stages_of(allocate(problem, param(Param.BLOCK)), 4)) == [3.0, 5.0]


@pytest.mark.parametrize("allocator", BOTH)
def test_of_delayed_placements_that_are_alike_the_one_with_the_shortest_path(allocator: int) -> None:
    """Each partition behind a layer makes its gradients an iteration older."""
    problem = chain([2, 2, 2, 2], [Device("a"), Device("b")], rule=Param.DELAYED)
    found = allocate(problem, param(allocator, partitions=4), clock=lambda placement: 4.0)
    assert joined(found.starts, found.stages) == ((0, 2), (0, 1))


def test_the_clock_decides_between_finalists() -> None:
    """One that wants as many runs as possible; BLOCK's placement is always played, and no placement twice."""
    problem = chain([3, 1, 2, 6, 2, 4], [Device("a", 1), Device("b", 3)], micro_batches=8)
    for allocator, count in ((Param.GABRA, 9), (Param.EXACT, 2)):
        played: list[Placement] = []

        def clock(placement: Placement, played: list[Placement] = played) -> float:
            played.append(placement)
            return -len(joined(placement.starts, placement.stages)[0])

        asked = param(allocator, partitions=6)
        found = allocate(problem, asked, clock=clock)
        assert len({tuple(stages_of(placement, 6)) for placement in played[:-1]}) == len(played) - 1 == count - 1
        assert played[0] == allocate(problem, asked)
        assert played[-1] == allocate(problem, PipelineSpec())
        assert clock(found) == min(map(clock, played[:]))
        assert bool(found.convergence) == (allocator == Param.GABRA)


def test_of_placements_as_fast_the_one_that_is_even_in_memory() -> None:
    """EXACT alone saves the message of two bytes; BLOCK's placement has half of the memory on each device."""
    problem, asked = uneven(Param.SEQUENTIAL, 20), param(Param.EXACT, partitions=5)
    quick = allocate(problem, asked)
    assert stages_of(quick, 5) != [0, 0, 1, 1, 1]
    for gain, stages in ((0.99, [0, 0, 1, 1, 1]), (0.97, stages_of(quick, 5))):
        found = allocate(problem, asked, clock=lambda placement, gain=gain: gain if placement == quick else 1.0)  # type: ignore[misc]
        assert stages_of(found, 5) == stages


def test_the_clock_is_not_asked() -> None:
    """Where there is nothing to decide, and for the paper's objective."""
    problem = chain([3, 1, 2], [Device("a"), Device("b")])

    def clock(placement: Placement) -> float:
        raise AssertionError(placement)

    allocate(problem, PipelineSpec(), clock=clock)
    allocate(problem, PipelineSpec(allocator=Param.MANUAL), [0, None, 1], clock)
    for allocator in BOTH:
        allocate(problem, param(allocator, objective=Param.PROFIT), clock=clock)


def test_large_cases_have_fewer_finalists() -> None:
    problem = chain([1 + i % 5 for i in range(40)], [Device("a", 1), Device("b", 3)], micro_batches=50)
    played: list[Placement] = []

    def clock(placement: Placement) -> float:
        played.append(placement)
        return 0.0

    allocate(problem, param(Param.GABRA, partitions=40), clock=clock)
    assert len(played) == 4096 // (40 * 50) + 1


@pytest.mark.parametrize("allocator", ALL)
def test_a_net_without_work(allocator: int) -> None:
    problem: Problem = chain([0, 0, 0], [Device("a"), Device("b", math.pi)], link=DeviceLink(0, math.inf))
    for objective in (Param.STEP_TIME, Param.PROFIT):
        assert set(allocate(problem, param(allocator, objective=objective)).stages) == {0, 1}


MANUAL = PipelineSpec(allocator=Param.MANUAL)
TWO = (Device("a"), Device("b"))


def test_a_stage_holds_up_to_the_next_that_is_named() -> None:
    marks = [None, None, 1, None, 0, 1]
    assert allocate(chain([1] * 6, TWO), MANUAL, marks) == Placement((0, 2, 4, 5), (0, 1, 0, 1))


def test_layers_without_bottoms_cut_no_run() -> None:
    problem = replace(chain([0, 1, 1, 0, 1], TWO), sources=(0, 3), together=((0, 2), (2, 4)))
    assert allocate(problem, MANUAL, [None, 1, 0, 1, None]) == Placement((0, 2, 4), (1, 0, 1))


def test_no_such_stage() -> None:
    with pytest.raises(LayerError, match=r'layer "l1": .*no stage 2; the stages are 0 to 1'):
        allocate(chain([1] * 3, TWO), MANUAL, [None, 2, None])


def test_empty_stage() -> None:
    remedy = r"let one name it, parallel_param \{ stage: 1 \}, or set num_stages: 1$"
    with pytest.raises(PrototxtError, match=rf"no layer runs on stage 1 \(device b\); {remedy}"):
        allocate(chain([1] * 3, TWO), MANUAL, [0, None, None])


def test_a_hole_between_stages() -> None:
    """Fewer stages would not help: the layers' numbers have to move up. Nor is a device called twice one."""
    devices = [Device(f"device {stage}") for stage in range(4)]
    remedy = r"parallel_param \{ stage: 1 \}, or number the stages from 0 to 2$"
    with pytest.raises(PrototxtError, match=rf"no layer runs on stage 1 \(device 1\); let one name it, {remedy}"):
        allocate(chain([1] * 4, devices), MANUAL, [0, 2, None, 3])


def test_what_stays_together() -> None:
    problem = chain([1] * 4, TWO, together=((1, 3),))
    with pytest.raises(LayerError, match=r'layer "l2": .*same stage as layer "l1".*on stage 0, this one on 1'):
        allocate(problem, MANUAL, [None, None, 1, None])


def test_memory() -> None:
    problem = chain([1] * 4, (Device("a", memory=60), Device("b", memory=47)))
    assert allocate(problem, MANUAL, [None, None, None, 1]).starts == (0, 3)
    with pytest.raises(PrototxtError, match=r"device b \(stage 1\) lacks 1 bytes of memory: .*need 48"):
        allocate(problem, MANUAL, [None, None, 1, None])


def test_delayed_stages_by_hand_lie_anywhere() -> None:
    problem = chain([1] * 3, TWO, rule=Param.DELAYED)
    assert allocate(problem, MANUAL, [0, 1, None]).stages == (0, 1)
    assert allocate(problem, MANUAL, [0, 1, 0]).stages == (0, 1, 0)
