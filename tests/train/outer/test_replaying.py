"""Replays of logs that end before their run did, or whose run was stopped."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bpt.base.signals import SignalAction, SignalActions
from bpt.train.solver.solver import RunOutcome
from tests.train.outer.outer_runs import assert_equal, outer, weights

pytestmark = pytest.mark.usefixtures("folder")


def replay_of(lines: int, caplog: pytest.LogCaptureFixture) -> RunOutcome:
    """Train on two workers, and repeat so many lines of the log; below 0: all but so many."""
    outer(3, "exchange: AGWU", "max_iter: 9")
    log = Path("small_run/replay.jsonl").read_text().splitlines(keepends=True)
    Path("short.jsonl").write_text("".join(log[:lines]))
    caplog.clear()
    with caplog.at_level(logging.INFO, "bpt"):
        return outer(3, "exchange: AGWU", "max_iter: 9 snapshot_prefix: 'again'", replay="short.jsonl")


def test_a_log_that_ends_early_is_no_success(caplog: pytest.LogCaptureFixture) -> None:
    """All but the last order to stop: all is trained as it was, and yet nobody knows whether that is all."""
    outcome = replay_of(-1, caplog)
    assert outcome.short and not outcome.terminated
    (told,) = [message for message in caplog.messages if message.startswith("Replay: the log ends after ")]
    assert told.endswith(" of 9; the run that wrote it was stopped there, or the file was cut")
    assert "Optimization stopped early." in caplog.messages and "Optimization Done." not in caplog.messages
    assert Path(f"again_iter_{outcome.iterations}.solverstate").exists()


def test_a_log_without_an_update_leaves_no_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    assert replay_of(3, caplog).short
    assert not list(Path().glob("again_iter_*"))


def test_a_log_of_a_run_that_was_stopped_tells_so(caplog: pytest.LogCaptureFixture) -> None:
    class Stopped(SignalActions):
        asked = 0

        def take(self) -> SignalAction:
            self.asked += 1
            return SignalAction.STOP if self.asked == 40 else SignalAction.NONE

    outer(1, "exchange: AGWU", "max_iter: 100000", signals=Stopped())
    Path("small_run").rename("first_run")
    (state,) = Path().glob("small_iter_*.solverstate")
    with caplog.at_level(logging.INFO, "bpt"):
        caplog.clear()
        outcome = outer(
            1, "exchange: AGWU", "max_iter: 100000 snapshot_prefix: 'again'", replay="first_run/replay.jsonl"
        )
    assert not outcome.short and state.name == f"small_iter_{outcome.iterations}.solverstate"
    place = f"at iteration {outcome.iterations} of 100000"
    assert f"Replay: the run that wrote the log was stopped {place}, and so is its replay" in caplog.messages
    assert "Optimization stopped early." in caplog.messages
    assert_equal(weights(outcome.iterations, "again"), weights(outcome.iterations))
