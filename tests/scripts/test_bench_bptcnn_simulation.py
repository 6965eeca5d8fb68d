"""``scripts/bench bptcnn`` and the simulator: the cluster that it simulates, and the comparison."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bpt.config.plan.resolve import resolve
from bpt.config.proto.sources import read_solver
from bpt.perf.simulate.simulation import PAPER_STRATEGIES
from bpt.system.comm.base import Communicator
from scripts.benches.bptcnn.calibration import trained
from scripts.benches.bptcnn.simulation import SIMULATED, Calibration, Node, compared, simulate, simulated_rows
from scripts.benches.harness import outer_jobs as jobs
from scripts.benches.harness.outer_jobs import Work
from tests.scripts.bptcnn_runs import FOUR, write_digits


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_digits(tmp_path / "digits", train=3, test=2)
    monkeypatch.setattr(jobs, "DIGITS", tmp_path / "digits")


CALIBRATION = Calibration(
    1_000_000, (Node("a", 1000.0, 0.1, 2000.0, 0.001, 0.009), Node("b", 500.0, 0.0, None, 0.001, 0.011)), merge=0.002
)


def test_calibration_becomes_a_cluster(tmp_path: Path) -> None:
    seen = {
        "weights": 1_000_000, "merge": 0.002,
        "nodes": [
            {"host": "a", "speed": 1000.0, "noise": 0.1, "frequency": 2e3, "small": 0.001, "large": 0.009},
            {"host": "b", "speed": 500.0, "noise": 0.0, "frequency": None, "small": 0.001, "large": 0.011, "first": []},
        ],
    }  # fmt: skip
    (tmp_path / "seen.json").write_text(json.dumps(seen))
    calibration = Calibration.read(tmp_path / "seen.json")
    assert calibration == CALIBRATION
    cluster = calibration.cluster()
    # 8 Mbit in 8 ms and in 10 ms; the server's link is no slower than the fastest; 1 MB merged in 2 ms
    assert [node.bandwidth for node in cluster.node] == pytest.approx([1000.0, 800.0])
    assert [node.HasField("frequency") for node in cluster.node] == [True, False]
    assert [node.name for node in cluster.node] == ["a", "b"]
    assert cluster.node[0].samples_per_second == 1000.0 and cluster.node[0].noise == 0.1
    assert cluster.node[0].latency == 0.001
    assert cluster.server.bandwidth == pytest.approx(1000.0)
    assert cluster.server.update_rate == pytest.approx(500.0)


def test_simulation_of_the_four(digits: None, tmp_path: Path) -> None:
    solver, _ = Work(samples=6400, passes=4, batch=64, batches=3, tests=1).write(tmp_path)
    even = Calibration(1_724_320, tuple(Node(host, 1000.0, 0.0, 1.0, 0.0, 1e-9) for host in "ab"), merge=1e-9)
    outcomes = simulate(solver, even, tmp_path / "cluster.prototxt")
    assert list(outcomes) == [str(way) for way in PAPER_STRATEGIES]
    # 25,600 samples at 2,000 a second, whole batches: never less, and at most two batches a pass more
    assert all(12.8 <= outcome.seconds <= 12.8 + 5 * 0.128 for outcome in outcomes.values())


def test_comparison_with_the_simulation(digits: None, tmp_path: Path) -> None:
    solver, _ = Work(samples=6400, passes=4, batch=64, batches=3, tests=1).write(tmp_path)
    outcomes = simulate(solver, CALIBRATION, tmp_path / "cluster.prototxt")
    some = {name: outcome for name, outcome in outcomes.items() if name in FOUR}
    read = [dict(zip(SIMULATED, row, strict=True)) for row in simulated_rows(some, FOUR)]
    assert [(row["way"], row["measured"]) for row in read] == [("SGWU+UDPA", 20.0), ("AGWU+IDPA", 11.0)]
    assert read[1]["ratio"] == pytest.approx(outcomes["AGWU+IDPA"].seconds / 11)
    *_, last = compared(some, FOUR)
    worst = max(abs(row["ratio"] - 1) for row in read)  # type: ignore[operator]
    assert last == f"worst difference {worst:.1%}, at most 10%: {'missed' if worst > 0.1 else 'reached'}"


def test_the_calibration_trains_as_a_worker_does(digits: None, tmp_path: Path) -> None:
    solver, _ = Work(samples=6400, passes=4, batch=64, batches=3, tests=1).write(tmp_path)
    met: list[str] = []
    world = cast(Communicator, SimpleNamespace(rank=1, Barrier=lambda: met.append("warm")))
    seen, weights = trained(resolve(read_solver(solver)).training_only(), 0.0, world)
    assert met == ["warm"]
    assert seen["speed"] > 0 and seen["noise"] >= 0 and seen["warm_up"] > 0
    assert weights.nbytes == 4 * 431_080
