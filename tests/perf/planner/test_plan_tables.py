"""The report of a plan, line by line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.parallel.pipeline.pipeline_clock import Clock
from bpt.parallel.pipeline.placement.problem import DeviceLink
from bpt.perf.planner.plan_layers import plan_solver
from bpt.perf.planner.plan_report import forecast_placement
from bpt.perf.planner.plan_tables import lines, milestones, span
from tests.support.plans import CLUSTER, two_unlike

# The numbers are worked out in tests/perf/planner/test_plan_layers.py.
EXPECTED = """\
small on 2 devices: BLOCK, GPIPE, 2 micro-batches; 4 layers, 307 parameters, batch 8
costs: measured on host: cpu (Fast)

stage  device  layers     partitions   load     ms  parameters MiB  blobs MiB  of MiB
0      fast    data … ip           1  66.7%  3,000        0.004246   0.005371
1      slow    loss                1  66.7%  3,000               0  0.0001259

transfer  from  to     kB  diff kB
y            0   1  0.032
ip           0   1  0.096    0.096
2 blobs, 0.224 kB a pass, each in 2 parts.

predicted       iteration ms  samples/s  bubble  speed-up
this placement         4,500     1.7778   33.3%     0.889
even split             7,000     1.1429   42.9%     0.571
alone: fast            4,000          2    0.0%     1.000
The even split treats devices as equal; its stages begin at ip.
fast alone is faster than a pipeline of these devices: train on it with one process, without num_stages.
Or try micro_batches above 2, for a smaller bubble; schedule: DELAYED, which has no bubble but delays gradients; \
larger batches; bpt plan --auto, which also tries data parallelism.

load: the part of an iteration in which a device computes; bubble: the idle part of all devices' time.
"""


def test_the_whole_report(tmp_path: Path) -> None:
    assert "".join(f"{line}\n" for line in lines(plan_solver(two_unlike(tmp_path)))) == EXPECTED


def test_links_and_memory(tmp_path: Path) -> None:
    """2 MB/s are 16 Mbit/s. The even split puts ip, 2,340 bytes of parameters, on the device with less memory."""
    plan = plan_solver(two_unlike(tmp_path))
    devices = (plan.problem.devices[0], replace(plan.problem.devices[1], memory=2000))
    problem = replace(plan.problem, link=DeviceLink(0.003, 2e6), devices=devices)
    text = "\n".join(lines(replace(plan, problem=problem)))
    assert "Between any two devices: 16 Mbit/s, latency 3 ms." in text
    assert "even split (too little memory: slow)  " in text
    assert "  0.00190735\n" in text
    assert "without limit" not in text
    unlimited = replace(plan.problem, link=DeviceLink(0.003))
    assert "Between any two devices: without limit, latency 3 ms." in "\n".join(lines(replace(plan, problem=unlimited)))


def test_capacities_and_what_each_stage_gets(tmp_path: Path) -> None:
    """Layers before the loss took 9 of 12 s, as test_plan_layers.py has it."""
    text = "\n".join(lines(plan_solver(two_unlike(tmp_path, cluster=CLUSTER.replace("2 }", "2 capacity: 0.8 }", 1)))))
    assert "of MiB   work  capacity" in text
    assert re.search(r"^0 +fast .* 75\.0% +80\.0%$", text, re.MULTILINE)
    assert re.search(r"^1 +slow .* 25\.0% *$", text, re.MULTILINE)


def test_a_pipeline_that_pays_is_not_talked_out_of(tmp_path: Path) -> None:
    """Half a second less than alone; and so it is where alone there is no room."""
    plan = plan_solver(two_unlike(tmp_path))
    words = "alone is faster"
    assert words in "".join(lines(plan))
    assert words not in "".join(lines(replace(plan, chosen=replace(plan.chosen, seconds=3.5))))
    assert words not in "".join(lines(replace(plan, alone=replace(plan.alone, fits=False))))


def test_a_stage_with_several_runs(tmp_path: Path) -> None:
    plan = plan_solver(two_unlike(tmp_path))
    found = forecast_placement(Clock(plan.graph, plan.problem, 1, 0.0), (0, 2, 3), (0, 1, 0))
    report = list(lines(replace(plan, chosen=found)))
    (first,) = [number for number, line in enumerate(report) if "  fast  " in line]
    assert "  data … conv  " in report[first]
    assert report[first + 1].split() == ["loss"]
    assert report[first + 1].index("loss") == report[first].index("data")


def test_one_device_has_nothing_to_send(tmp_path: Path) -> None:
    text = 'parallel_param { num_stages: 1 pipeline_param { devices: "" costs: "" } }'
    report = list(lines(plan_solver(two_unlike(tmp_path, text))))
    assert report[0].startswith("small on 1 device: BLOCK, GPIPE, 2 micro-batches; ")
    assert report[1] == "costs: floating-point operations"
    assert "Nothing travels between devices." in report
    assert not any("even split takes" in line for line in report)


def test_what_is_assumed(tmp_path: Path) -> None:
    unknown = plan_solver(two_unlike(tmp_path, 'parallel_param { pipeline_param { devices: "" } }'))
    assert list(lines(unknown))[-1] == (
        "No file describes the devices: each counts as the measured machine, each link as 10 Gbit/s."
    )
    counted = plan_solver(two_unlike(tmp_path, 'parallel_param { pipeline_param { devices: "" costs: "" } }'))
    assert "each counts as 10 GFLOP/s, each link as 10 Gbit/s" in list(lines(counted))[-2]


def test_gabras_convergence(tmp_path: Path) -> None:
    plan = plan_solver(two_unlike(tmp_path))
    curve = tuple((generation, 1.0 / (1 + generation)) for generation in range(101))
    report = list(lines(replace(plan, allocator="GABRA", convergence=curve, objective="STEP_TIME")))
    start = next(number for number, line in enumerate(report) if line.startswith("GABRA: generation"))
    assert report[start].split() == ["GABRA:", "generation", "STEP_TIME"]
    assert report[start + 1].split() == ["0", "1"]
    assert "100  0.00990099" in report[report.index("", start) - 1]


@pytest.mark.parametrize(
    ("length", "shown"),
    [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (1001, [0, 1, 3, 10, 32, 100, 316, 1000])],
)
def test_milestones(length: int, shown: list[int]) -> None:
    """Powers of the sixth root of the last."""
    assert [generation for generation, _ in milestones([(number, 0.0) for number in range(length)])] == shown


def test_span(tmp_path: Path) -> None:
    graph = plan_solver(two_unlike(tmp_path)).graph
    assert span(graph, 1, 2) == "conv"
    assert span(graph, 1, 4) == "conv … loss"


def test_many_transfers_are_counted(tmp_path: Path) -> None:
    plan = plan_solver(two_unlike(tmp_path))
    many = replace(plan.chosen, transfers=plan.chosen.transfers * 15)
    report = list(lines(replace(plan, chosen=many)))
    assert "... and 6 more" in report
    assert "30 blobs, 3.36 kB a pass, each in 2 parts." in report


def test_neighbours_on_one_stage_are_one_segment(tmp_path: Path) -> None:
    plan = plan_solver(two_unlike(tmp_path))
    found = forecast_placement(Clock(plan.graph, plan.problem, 1, 0.0), (0, 2, 3), (0, 0, 1))
    assert [(segment.start, segment.end) for segment in found.segments] == [(0, 3), (3, 4)]
    assert found.partitions == (2, 1)
    assert found.seconds == pytest.approx(4.5)


def test_the_update_is_work_too(tmp_path: Path) -> None:
    """6 s at speed 1: 2 s on the first device, which has all parameters."""
    plan = plan_solver(two_unlike(tmp_path))
    found = forecast_placement(Clock(plan.graph, plan.problem, 1, 6.0), (0, 3), (0, 1))
    assert found.busy == pytest.approx((3 + 2, 3))
    assert found.seconds == pytest.approx(6.5)
