"""``bpt compare`` at the command line: real runs, alone and on two ranks, and what is refused."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from tests.support.commands import Bpt
from tests.support.mpirun import mpi_environment, needs_mpi
from tests.support.small_solver import NET

TESTS = """
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "y" top: "accuracy" include { phase: TEST } }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 10 display: 5 test_iter: 1 test_interval: 5
solver_mode: CPU snapshot_after_train: false
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a small solver."""
    (tmp_path / "net.prototxt").write_text(NET + TESTS)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "comparison.csv").open() as file:
        return {row["strategy"]: row for row in csv.DictReader(file)}


def test_two_runs_and_one_that_fails(bpt: Bpt, folder: Path) -> None:
    words = ("--strategies=DATA", "--try=slow=base_lr: 0.001", "--try=bad=weights: 'none.caffemodel'")
    outcome = bpt("compare", "--solver=solver.prototxt", *words, "--output=out")
    assert outcome.status == 1
    rows = rows_of(folder / "out")
    assert list(rows) == ["DATA", "slow", "bad"]
    for name in ("DATA", "slow"):
        assert rows[name]["failure"] == ""
        assert rows[name]["measure"] == "accuracy"
        assert float(rows[name]["seconds_an_iteration"]) > 0
        assert rows[name]["bytes_sent_an_iteration"] == "0.0"
        assert "random_seed: 1" in (folder / "out" / name / "train.log").read_text()
    assert "none.caffemodel" in rows["bad"]["failure"]
    assert outcome.out == (folder / "out" / "comparison.md").read_text()
    assert "bad failed: " in outcome.out


def test_without_matplotlib_there_is_a_table(bpt: Bpt, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = bpt("compare", "--solver=solver.prototxt", "--strategies=DATA", "--output=out")
    assert outcome.status == 0
    assert "comparison.png is left out: figures need the package matplotlib: pip install 'bpt[plot]'" in outcome.err
    assert list(rows_of(folder / "out")) == ["DATA"]
    assert not (folder / "out" / "comparison.png").exists()


@needs_mpi
@needs_mpi
def test_two_ranks(bpt: Bpt, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    for name, value in mpi_environment().items():
        monkeypatch.setenv(name, value)
    flags = ("--ranks=2", "--mpirun=--oversubscribe", "--output=out")
    outcome = bpt("compare", "--solver=solver.prototxt", "--strategies=DATA,CGDP", *flags)
    assert outcome.status == 0, outcome.out
    rows = rows_of(folder / "out")
    assert [row["ranks"] for row in rows.values()] == ["2", "2"]
    assert all(0 <= float(row["waiting"]) <= 1 for row in rows.values())
    assert (folder / "out" / "comparison.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "bpt compare needs --solver"),
        (["--solver=solver.prototxt"], "bpt compare needs --output"),
        (["--solver=solver.prototxt", "--output=out"], "bpt compare needs --strategies or --try"),
        (["--solver=solver.prototxt", "--output=out", "--strategies=CGPD"], 'did you mean "CGDP"?'),
        (["--solver=solver.prototxt", "--output=.", "--strategies=DATA"], "is there already"),
        (["--solver=solver.prototxt", "--output=out", "--try=a=base_lrr: 1"], "base_lrr"),
    ],
)
def test_mistakes(bpt: Bpt, folder: Path, words: list[str], message: str) -> None:
    outcome = bpt("compare", *words)
    assert outcome.status == 2
    assert message in outcome.error
    assert not (folder / "out").exists()
