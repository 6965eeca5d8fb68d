"""``bpt train --replay`` at the command line: a log that was cut is no success."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.train.outer import serving
from tests.support.commands import Bpt

TRAIN = ("train", "--solver=solver.prototxt", "--set=max_iter: 40 parallel_param { exchange: AGWU }")


@pytest.fixture
def log(bpt: Bpt, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a run has left; it is moved, since the next run writes its own."""
    monkeypatch.setattr(serving, "draw", lambda record, folder: [])  # takes seconds
    assert bpt(*TRAIN, "--set=snapshot_prefix: 'first'").status == 0
    return inputs / "first_run" / "replay.jsonl"


def test_a_whole_log(bpt: Bpt, log: Path) -> None:
    outcome = bpt(*TRAIN, f"--replay={log}", "--set=snapshot_prefix: 'again'")
    assert outcome.status == 0
    assert outcome.err.endswith("Optimization Done.\n") or "] Optimization Done." in outcome.err


def test_lines_are_missing_at_its_end(bpt: Bpt, log: Path) -> None:
    """As after ``head -3``."""
    lines = log.read_text().splitlines(keepends=True)
    assert len(lines) > 4
    Path("short.jsonl").write_text("".join(lines[:4]))
    outcome = bpt(*TRAIN, "--replay=short.jsonl", "--set=snapshot_prefix: 'again'")
    assert outcome.status == 1
    assert outcome.error.startswith("short.jsonl: the replay ended at iteration ")
    assert "Replay: the log ends after 3 decisions, at iteration " in outcome.err
    assert "Optimization Done." not in outcome.err and "] Optimization stopped early." in outcome.err


def test_half_a_line_at_its_end(bpt: Bpt, log: Path) -> None:
    Path("half.jsonl").write_text(log.read_text()[:-20])
    outcome = bpt(*TRAIN, "--replay=half.jsonl")
    assert outcome.status == 2
    last = len(log.read_text().splitlines())
    assert outcome.error.startswith(f"half.jsonl:{last}: this is no instruction of a replay log: ")
