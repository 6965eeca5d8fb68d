"""The arithmetic and the texts of ``scripts/bench balance``; what it measures takes a quiet machine and root."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.graph.spec import count
from bpt.plan.resolve import read_plan
from bpt.proto import bpt_pb2 as pb
from scripts.benches import balance
from scripts.benches.balance import Outcome, Turn, ideal_seconds, outcomes, report, write_solver


def test_ideal_seconds() -> None:
    # 80 and 20 samples a second: 100 samples in 1 s.
    assert ideal_seconds([80, 20], [1.0, 1.0]) == pytest.approx(1.0)
    # 60 in 0.5 s and 40 in 2 s: 120 and 20 a second; 100 / 140.
    assert ideal_seconds([60, 40], [0.5, 2.0]) == pytest.approx(100 / 140)
    assert ideal_seconds([10, 0], [2.0, 0.0]) == pytest.approx(2.0)


SIDES = {
    "UNIFORM": Outcome(
        (50, 50),
        (
            Turn(2.2, (0.5, 2.0), (1.7, 0.1)),
            Turn(9.9, (0.7, 8.0), (9.2, 1.9)),  # something else went on
            Turn(2.1, (0.4, 2.1), (1.5, 0.0)),
        ),
    ),
    "STATIC": Outcome((80, 20), (Turn(1.1, (0.8, 1.0), (0.3, 0.1)),)),
}


def test_an_outcome_is_the_median_of_its_turns() -> None:
    uniform = SIDES["UNIFORM"]
    assert uniform.seconds == 2.2
    assert uniform.computing == [0.5, 2.1]
    assert uniform.exchange == 0.1  # of 0.1, 1.9 and 0


def test_report() -> None:
    predicted = {"UNIFORM": [0.5, 2.0], "STATIC": [1.0, 1.0]}
    assert list(report("small", ["a", "b"], predicted, SIDES)) == [
        "small, batch 100: ms an iteration, medians of 1 turns",
        "           rank      samples  predicted       seen",
        "  UNIFORM  0 (a)          50      500.0      500.0",
        "           1 (b)          50     2000.0     2100.0",
        # 2 / 1.25 - 1; 2.1 / 1.3 - 1
        "           imbalance predicted 60.0%, seen 61.5%; exchange 100.0; whole iteration 2200.0",
        "  STATIC   0 (a)          80     1000.0      800.0",
        "           1 (b)          20     1000.0     1000.0",
        "           imbalance predicted 0.0%, seen 11.1%; exchange 100.0; whole iteration 1100.0",
        "  speed-up of STATIC over UNIFORM: 2.000",
        # 100 and 20 samples a second: 100 in 833.3 ms. 2.1 / 0.8333
        "  ideal at the speeds in training: 2.520 (2100.0 / 833.3); achieved / ideal 79.4%",
        "  ideal at the speeds by the profile: 2.000 (2000.0 / 1000.0); achieved / ideal 100.0%",
    ]


def test_outcomes_are_what_the_worker_writes() -> None:
    turn = {"seconds": 2.2, "computing": [0.5, 2.0], "exchange": [1.7, 0.1]}
    written = {side: {"shares": [3, 1], "turns": [turn]} for side in ("UNIFORM", "STATIC")}
    expected = Outcome((3, 1), (Turn(2.2, (0.5, 2.0), (1.7, 0.1)),))
    assert outcomes(written) == {"UNIFORM": expected, "STATIC": expected}


@pytest.mark.parametrize("name", balance.SHAPES)
def test_solvers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nets of prototxt/, all of their layers, on images of the right shape."""
    monkeypatch.setattr(balance, "IMAGES", 4)
    path = write_solver(name, 4, balance.make_images(balance.SHAPES[name], tmp_path), tmp_path)
    source = read_plan(path, ["parallel_param { balance: STATIC }"])
    graph = source.train.graph()
    assert sum(count(p.shape) for p in graph.learnable) == {
        "resnet20": 271_117, "staticlb_cifar10": 176_034, "staticlb_mnist": 21_840
    }[name]  # fmt: skip
    assert graph.edges[0].shape == (4, *map(int, balance.SHAPES[name].split("x")))
    assert source.engine == pb.SolverParameter.CHANNELS_LAST
    assert not source.parallel_param.sync_batch_norm
    assert source.parallel_param.balance_param.profile == str(tmp_path / f"{name}.json")
