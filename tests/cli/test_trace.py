"""``bpt train --trace`` of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Bpt
from tests.support.read_trace import read_chrome, read_perfetto
from tests.support.spread_runs import set_up

TRAIN = ("train", "--solver", "solver.prototxt")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "read"), [("t.json", read_chrome), ("t.pftrace", read_perfetto)])
def test_one_process(name: str, read: type, bpt: Bpt) -> None:
    """Nine iterations of two passes; tests at 0, 4 and 8, a snapshot at the end, what it displays at 0, 3, 6 and 9."""
    assert bpt(*TRAIN, "--trace", name).status == 0
    trace = read(Path(name))
    trace.check_compute(0, {"F": 18, "B": 18, "X": 9, "W": 9, "U": 9})
    names = [bar.name for bar in trace.tracks[0, "compute"]]
    assert [names.count(each) for each in ("test", "snapshot", "display")] == [3, 1, 1]
    shown = [(bar.name, bar.details["in"]) for bar in trace.tracks[0, "within compute"]]
    assert shown == [("display", "U")] * 3 + [("F0", "display")]
    assert {bar.details["in"] for bar in trace.tracks[0, "data (MainThread)"]} <= {"F0", "test"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "t.txt",
            "--trace t.txt: the name must end in .json or .json.gz (Chrome's trace format) or .pftrace (Perfetto's)",
        ),
        ("nowhere/t.json", 'nowhere/t.json: cannot be written: there is no folder "nowhere"; make it, or name another'),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_training(name: str, message: str, bpt: Bpt) -> None:
    outcome = bpt(*TRAIN, "--trace", name)
    assert (outcome.status, outcome.error) == (2, message)
    assert "Solving" not in outcome.err


def test_a_run_that_fails_leaves_its_trace(bpt: Bpt, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("small_iter_9.caffemodel").mkdir()  # where the weights are to go
    outcome = bpt(*TRAIN, "--trace", "t.json")
    assert outcome.status != 0
    trace = read_chrome(Path("t.json"))
    trace.check_compute(0, {"F": 18, "U": 9})
    assert "snapshot" in {bar.name for bar in trace.tracks[0, "compute"]}
