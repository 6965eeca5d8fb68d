"""Capacities: of the solver or of a cluster, and what is wrong with them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bpt.base.errors import FileError, PrototxtError
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.pipeline.devices import devices_of
from tests.support.small_solver import small_solver
from tests.support.typed import at

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
