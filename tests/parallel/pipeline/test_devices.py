"""Devices: from clusters, profiles, or nothing; in the unit of the costs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bpt.base.errors import FileError, PrototxtError
from bpt.config.plan.run_plan import RunPlan
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.profile import work_digest, write_profile
from bpt.parallel.cluster.costs_file import write_costs
from bpt.parallel.pipeline.devices import NOMINAL_LINK, count_devices, devices_of
from bpt.parallel.pipeline.placement.problem import Device, DeviceLink
from tests.support.costs import COSTS
from tests.support.profiles import FACTS, PROFILE
from tests.support.small_solver import small_solver
from tests.support.typed import at

WORK = 3 * (28160 + 3096 + 96)  # operations of a batch of 8, forward and backward


def named(folder: Path, text: str, *overrides: str) -> RunPlan:
    """A solver with a file of devices beside it."""
    (folder / "d").write_text(text)
    return small_solver(folder, 'parallel_param { pipeline_param { devices: "d" } }', *overrides)


def found(source: RunPlan, stages: int) -> tuple[tuple[Device, ...], DeviceLink]:
    return devices_of(source, build_graph_of(source.train), stages)


def profiled(folder: Path, **facts: Any) -> RunPlan:
    """A solver with a profile of two ranks beside it."""
    graph = build_graph_of(small_solver(folder).train)
    write_profile(replace(PROFILE, facts=replace(FACTS, network=work_digest(graph), **facts)), str(folder / "d"))
    return named(folder, (folder / "d").read_text())


def test_nothing_is_known(tmp_path: Path) -> None:
    """10 GFLOP/s each, so that times are of a usual size."""
    devices, link = found(small_solver(tmp_path), 2)
    assert devices == (Device("device 0", 10e9), Device("device 1", 10e9))
    assert link == NOMINAL_LINK


def test_costs_were_measured_but_nothing_is_known_of_devices(tmp_path: Path) -> None:
    write_costs(COSTS, str(tmp_path / "c.json"))
    source = small_solver(tmp_path, 'parallel_param { pipeline_param { costs: "c.json" } }')
    assert found(source, 2)[0] == (Device("device 0", 1.0), Device("device 1", 1.0))


def test_a_cluster(tmp_path: Path) -> None:
    """A speed in gflops is that number of operations; 100 samples are 12.5 batches. The worst link counts for all."""
    source = named(
        tmp_path,
        """
        node { name: "a" gflops: 40 memory: 2 latency: 0.001 bandwidth: 1000 }
        node { name: "b" count: 2 samples_per_second: 100 latency: 0.002 bandwidth: 80 }
        node { gflops: 1 latency: 0.004 }
        """,
    )
    devices, link = found(source, 4)
    assert [device.name for device in devices] == ["a", "b.0", "b.1", "kind2"]
    assert [device.speed for device in devices] == pytest.approx([40e9, 12.5 * WORK, 12.5 * WORK, 1e9])
    assert [device.memory for device in devices] == [2 * 2**20, math.inf, math.inf, math.inf]
    assert link == DeviceLink(0.006, 1e7)
    assert count_devices(source) == 4


def test_a_cluster_with_measured_costs(tmp_path: Path) -> None:
    """A batch took 12 s here; a device that trains 2 samples a second takes 4 s for it."""
    write_costs(COSTS, str(tmp_path / "c.json"))
    costs = 'parallel_param { pipeline_param { costs: "c.json" } }'
    (device,), _ = found(named(tmp_path, "node { samples_per_second: 2 }", costs), 1)
    assert device.speed == pytest.approx(3.0)


def test_samples_a_second_are_those_of_whole_iterations(tmp_path: Path) -> None:
    """An iteration of two batches took 24 s here, and its update 6; a device that trains 16 samples in 4 s does so
    7.5 times as fast."""
    write_costs(replace(COSTS, update=6.0), str(tmp_path / "c.json"))
    costs = 'iter_size: 2 parallel_param { pipeline_param { costs: "c.json" } }'
    (device,), _ = found(named(tmp_path, "node { samples_per_second: 4 }", costs), 1)
    assert device.speed == pytest.approx(7.5)


def test_a_profile(tmp_path: Path) -> None:
    """Rank 0 took 0.8 s for 8 samples, rank 1 0.3 s for one."""
    source = profiled(tmp_path)
    devices, link = found(source, 2)
    assert [device.name for device in devices] == ["rank 0 (a)", "rank 1 (b)"]
    assert [device.speed for device in devices] == pytest.approx([WORK / 0.8, WORK / 2.4])
    assert {device.memory for device in devices} == {math.inf}
    assert link == NOMINAL_LINK
    assert count_devices(source) == 2


def test_a_profile_of_several_passes(tmp_path: Path) -> None:
    """The times are of iterations with two passes each, in both of which 8 samples were trained."""
    devices, _ = found(profiled(tmp_path, solver={"iter_size": 2}), 2)
    assert [device.speed for device in devices] == pytest.approx([2 * WORK / 0.8, 2 * WORK / 2.4])


def test_a_profile_of_another_net(tmp_path: Path) -> None:
    write_profile(PROFILE, str(tmp_path / "p"))
    source = named(tmp_path, (tmp_path / "p").read_text())
    with pytest.raises(FileError, match=r'd: was measured for another net \("small"\) than "small"\. Measure again'):
        found(source, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node { gflops: 1 }", "pipeline_param: devices: d: has 1 node, but num_stages is 2: a pipeline has "),
        ("node { gflops: 1 count: 3 }", "pipeline_param: devices: d: has 3 nodes, but num_stages is 2"),
        ("node { }", "{folder}/d:1:1: a node has either samples_per_second or gflops; neither is set"),
        ("node { gflops: 1 memory: -1 count: 2 }", "{folder}/d:1:18: memory is -1; it must be finite and at least 0"),
        ("{ 1", "{folder}/d:1:3: is not a profile: Expecting property name"),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((PrototxtError, FileError)) as caught:
        found(named(tmp_path, text), 2)
    assert message.replace("{folder}", str(tmp_path)) in str(caught.value)


def test_a_net_without_work(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("node { samples_per_second: 1 }")
    layer = 'layer { name: "data" top: "x" type: "DummyData" dummy_data_param { shape { dim: 8 dim: 3 } } }'
    source = small_solver(tmp_path, 'parallel_param { pipeline_param { devices: "d" } }', net=f'name: "idle" {layer}')
    with pytest.raises(PrototxtError, match=r"solver\.prototxt:1:1: the training net has no operations to count, by"):
        found(source, 1)


def test_a_flags_file_with_too_few_devices(tmp_path: Path) -> None:
    source = small_solver(tmp_path).with_pipeline(devices="d")
    (tmp_path / "d").write_text("node { gflops: 1 }")
    with pytest.raises(FileError, match=r"^d: has 1 node, but num_stages is 2"):
        found(source, 2)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    source = small_solver(tmp_path, 'parallel_param { pipeline_param { devices: "nope" } }')
    with pytest.raises(PrototxtError, match=r"^pipeline_param: devices: nope: no such file \(looked for /" + at(35)):
        found(source, 2)
    with pytest.raises(PrototxtError, match="no such file"):
        count_devices(source)


CLUSTER = "node { gflops: 2 capacity: 0.75 } node { gflops: 1 }"


def capacities(folder: Path, param: str, cluster: str = CLUSTER, flag: bool = False) -> list[float]:
    """Of two stages. ``flag``: a flag names the file of devices, not the solver."""
    (folder / "d").write_text(cluster)
    named = "" if flag else 'devices: "d"'
    plan = small_solver(folder, f"parallel_param {{ pipeline_param {{ {named} {param} }} }}")
    plan = plan.with_pipeline(devices="d") if flag else plan
    return [device.capacity for device in devices_of(plan, build_graph_of(plan.train), 2)[0]]


def test_what_is_given(tmp_path: Path) -> None:
    assert capacities(tmp_path, "") == [0.75, math.inf]
    assert capacities(tmp_path, "capacity: 0.5 capacity: 0.625") == [0.5, 0.625]
    assert capacities(tmp_path, "", "node { gflops: 1 count: 2 }") == [math.inf, math.inf]
    assert capacities(tmp_path, "", "node { gflops: 1 count: 2 capacity: 0.5 }") == [0.5, 0.5]


@pytest.mark.parametrize(
    ("param", "message", "column"),
    [
        ("capacity: 1", "pipeline_param: capacity is given 1 time, but there are 2 stages; give one for each", 48),
        ("capacity: 1 capacity: 0", "pipeline_param: capacity: 0, of stage 1; it must be above 0, where 1 is", 60),
        ("capacity: nan capacity: 1", "pipeline_param: capacity is nan; it must be finite", 48),
        ("capacity: 0.5 capacity: 0.25", ".* add up to 0.75 of the net's work, .*; give more, 0.25 at least", 48),
    ],
)
def test_what_is_wrong(param: str, message: str, column: int, tmp_path: Path) -> None:
    with pytest.raises(PrototxtError, match="^" + message + at(column)):
        capacities(tmp_path, param)


def test_a_cluster_of_too_little(tmp_path: Path) -> None:
    little = "node { gflops: 1 count: 2 capacity: 0.4 }"
    with pytest.raises(PrototxtError, match=r"^pipeline_param: devices: d: the capacities add up to 0.8 of" + at(35)):
        capacities(tmp_path, "", little)
    with pytest.raises(FileError, match=r"^d: the capacities add up to 0.8 of"):
        capacities(tmp_path, "", little, flag=True)
    with pytest.raises(PrototxtError, match=r"d:1:18: capacity is -1; it must be finite and at least 0"):
        capacities(tmp_path, "", "node { gflops: 1 capacity: -1 count: 2 }")
