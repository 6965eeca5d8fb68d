"""The arithmetic and the texts of ``scripts/bench hybrid``; what it measures takes a quiet machine and root."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import count
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster_file import ClusterSource
from bpt.perf.planner.plan_layers import plan_solver
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.solver.solver import Solver
from scripts.benches.harness.nets import Images
from scripts.benches.harness.peaks import Peak
from scripts.benches.hybrid import bench as hybrid
from scripts.benches.hybrid import memory, ranks
from scripts.benches.hybrid.nets import IMAGES, VOLUMES, solver_text
from scripts.benches.hybrid.results import Comparison, Result, Seen, Side, results, table, verdict
from tests.support.bench_arguments import parse

TURNS = [
    {"seconds": [2.0, 2.2, 9.0], "computing": [1.0, 1.5], "waiting": [1.0, 0.5]},
    {"seconds": [2.1, 2.0, 2.0], "computing": [1.2, 1.7], "waiting": [0.8, 0.3]},
    {"seconds": [5.0, 5.0, 5.0], "computing": [3.0, 4.0], "waiting": [2.0, 1.0]},  # something else went on
]
FOUND = {
    "hosts": ["a", "b"],
    "forward": [1.0, 2.0],
    "backward": [2.5, 5.0],
    "update": [0.5, 1.0],
    "latency": 0.002,
    "bandwidth": 125e6,
}


def seen(seconds: float) -> Seen:
    return Seen.read({"stages": [0, 1], "turns": [{"seconds": [seconds], "computing": [0.5, 1.0], "waiting": [0, 0]}]})


def compared(even: tuple[float, float], planned: tuple[float, float], net: str = "small") -> Comparison:
    """Predicted and measured seconds of both placements."""
    sides = (Side("ip", predicted, (0.4, 1.1), seen(measured)) for predicted, measured in (even, planned))
    return Comparison(net, "GPIPE", *sides)


def test_what_was_seen() -> None:
    """Medians of 2.2, 2.0 and 5.0; of each rank's times."""
    found = Seen.read({"stages": [0, 0, 1], "turns": TURNS})
    assert found.stages == (0, 0, 1)
    assert found.seconds == 2.2
    assert found.computing == (1.2, 1.7)


def test_gains_and_errors() -> None:
    """Predicted 3 / 2, measured 3.2 / 2.5."""
    found = compared((3.0, 3.2), (2.0, 2.5))
    assert found.predicted == pytest.approx(1.5)
    assert found.measured == pytest.approx(1.28)
    assert found.achieved == pytest.approx(1.28 / 1.5)
    assert found.even.error == pytest.approx(3 / 3.2 - 1)
    assert found.planned.error == pytest.approx(-0.2)


def test_repeats_count_by_their_medians() -> None:
    small = [compared((3.0, 3.0), (2.0, measured)) for measured in (2.0, 2.5, 4.0)]
    found = results([small[0], compared((1.0, 1.0), (1.0, 1.0), "other"), *small[1:]])
    assert [result.net for result in found] == ["small", "other"]
    assert found[0].planned.measured == 2.5
    assert found[0].planned.error == pytest.approx(-0.2)
    assert found[0].achieved == pytest.approx(0.8)
    assert found[0].planned.first == "ip"


def test_table() -> None:
    assert list(table([Result.of([compared((3.0, 3.2), (2.0, 2.0))])]))[1:] == [
        "small         GPIPE        even         3000.0    3200.0   -6.2%            400 / 1100    500 / 1000  ip",
        "                           planned      2000.0    2000.0   +0.0%            400 / 1100    500 / 1000  ip",
        "                           gain: predicted 1.500, measured 1.600; achieved / predicted 106.7%",
    ]


def test_verdict() -> None:
    good, bad = compared((3.0, 3.2), (2.0, 2.0)), compared((3.0, 3.0), (2.0, 2.5), "other")
    assert list(verdict(results([good]))) == [
        "least achieved / predicted gain 106.7%, goal 90%: met",
        "worst error of a prediction -6.2%, goal 15%: met",
    ]
    assert list(verdict(results([good, bad]))) == [
        "least achieved / predicted gain 80.0%, goal 90%: not met",
        "worst error of a prediction -20.0%, goal 15%: not met",
    ]


@pytest.mark.parametrize(("alike", "speeds"), [(False, [2.0, 1.0]), (True, [1.5, 1.5])])
def test_the_cluster(alike: bool, speeds: list[float], tmp_path: Path) -> None:
    """A batch of 8 takes a 4 s and b 8 s, updates included; between them lie 2 ms and 1 Gbit/s."""
    path = tmp_path / "d"
    path.write_text(hybrid.cluster_text(FOUND, 8, alike))
    nodes = ClusterSource(str(path)).cluster(1.0, 0).nodes
    assert [node.speed for node in nodes] == pytest.approx(speeds)
    assert sum(node.latency for node in nodes) == pytest.approx(0.002)
    assert [node.bandwidth for node in nodes] == pytest.approx([125e6, 125e6])


@pytest.mark.parametrize("name", IMAGES)
def test_nets(name: str, tmp_path: Path) -> None:
    """They train on images of the size that is asked for, and can be cut."""
    path = tmp_path / "solver.prototxt"
    path.write_text(solver_text(name, Images(IMAGES[name].size, 2)))
    source = read_plan(path, ["parallel_param { num_stages: 2 }"])
    graph = build_graph_of(source.train)
    size = IMAGES[name].size
    assert count(graph.edges[0].shape) == 2 * (size**3 if name in VOLUMES else 3 * size**2)
    assert not any(node.type in ("Data", "VolumeData", "Accuracy") for node in graph.nodes)
    assert plan_solver(source).chosen.seconds > 0


def test_the_memory_that_devices_are_said_to_have(tmp_path: Path) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text(solver_text("resnet20", Images(32, 64)))
    plan = plan_solver(read_plan(path, ["parallel_param { num_stages: 2 }"]))
    whole = sum(cost.parameters + cost.activations for cost in plan.problem.costs)
    assert memory.memory(path) == pytest.approx(memory.LIMIT * whole / 2**20, abs=1)


def test_memory_is_measured_in_both_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mib = 2**20
    sizes = {"CONTIGUOUS": (100, [60, 65]), "CHANNELS_LAST": (120, [90, 60])}  # one process, two stages

    def peaks(solver: Path, ranks: int, *fields: str) -> list[Peak]:
        source = read_plan(solver, fields)
        assert source.parallel_param.num_stages == (2 if ranks == 2 else 1)
        alone, stages = sizes[pb.SolverParameter.Engine.Name(source.engine)]
        return [Peak(size * mib, 100 * mib) for size in (stages if ranks == 2 else [alone])]

    monkeypatch.setattr(memory, "peaks", peaks)
    lines = list(memory.measure("resnet20", Images(32, 64), ["GPIPE"], 4, tmp_path))
    assert [line.split(", ")[-1] for line in lines if line.startswith("resnet20")] == [
        "CONTIGUOUS: MiB at the peak", "CHANNELS_LAST: MiB at the peak",
    ]  # fmt: skip
    assert [" ".join(line.split()) for line in lines if line.startswith("GPIPE")] == [
        "GPIPE 60 / 65 0.60 / 0.65 160 / 165 0.80 / 0.82",
        "GPIPE 90 / 60 0.75 / 0.50 190 / 160 0.86 / 0.73",
    ]
    assert [line.split(": ")[-1] for line in lines if "goal" in line] == ["met", "not met"]


def test_delayed_is_measured_alone() -> None:
    """In whole batches, which the costs of the other schedules are not."""
    with pytest.raises(SystemExit, match=r"--schedules: DELAYED is measured in whole batches"):
        hybrid.run(parse(hybrid, "--schedules", "GPIPE,DELAYED"))


@pytest.mark.parametrize(("delayed", "iterations", "steps"), [(False, 3, [1, 1, 1]), (True, 3, [15])])
def test_a_delayed_pipeline_is_not_held_up(delayed: bool, iterations: int, steps: list[int]) -> None:
    """Iterations of other schedules end together; those of DELAYED have their mean, of five times as many."""
    taken: list[int] = []
    events = SimpleNamespace(add=lambda totals: totals, remove=lambda totals: None)
    plan = SimpleNamespace(parallel_param=SimpleNamespace(is_delayed=delayed))
    solver = SimpleNamespace(plan=plan, runtime=SimpleNamespace(events=events), step=taken.append)
    found = ranks.train(cast(Solver, solver), SerialCommunicator(), iterations)
    assert taken == steps
    assert len(found["seconds"]) == sum(steps)
    assert len(set(found["seconds"])) == len(steps)
