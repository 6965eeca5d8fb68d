"""The progress bar: on a terminal, above it the log in whole lines; elsewhere nothing."""

from __future__ import annotations

import logging

import pytest

from bpt.base.log import StderrHandler
from bpt.base.progress import ProgressBar, showing_progress
from tests.support.pseudo_terminal import Terminal, screen

MESSAGES = [f"Iteration {number}, loss = {number / 8}" for number in range(5)]


def log(message: str) -> None:
    StderrHandler().handle(logging.LogRecord("bpt", logging.INFO, "solver.py", 1, message, None, None))


def run(done: int = 0) -> None:
    with ProgressBar(5, done, "training") as progress:
        for message in MESSAGES:
            progress.advance(loss=0.25)
            log(message)


def test_on_a_terminal_the_log_stands_above_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal() as terminal:
        run()
        shown = screen(terminal.read())
    assert shown[:5] == MESSAGES
    assert shown[5].startswith("training: 100%|")
    assert "| 5/5 [" in shown[5]
    assert "loss 0.25" in shown[5]
    assert shown[6:] == [""]
    assert capsys.readouterr().out == ""


def test_a_resumed_run_does_not_begin_at_zero() -> None:
    with Terminal() as terminal:
        with ProgressBar(10, 4, "training"):
            pass
        assert "| 4/10 [" in terminal.read()


def test_elsewhere_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    captured = capsys.readouterr()
    assert captured.err == "".join(f"{message}\n" for message in MESSAGES)
    assert captured.out == ""


def test_a_closed_terminal_does_not_end_the_run() -> None:
    with Terminal() as terminal, ProgressBar(1000, label="training") as progress:
        progress._bar.mininterval = 0  # drawn each time
        terminal.close_window()
        for _ in range(1000):
            progress.advance(loss=1.0)
            log("nobody reads this")


def test_an_observer_takes_the_place_of_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    class Observer:
        def __init__(self) -> None:
            self.seen: list[tuple[int, float | None]] = []

        def count_from(self, done: int, total: int) -> None:
            self.seen.append((done, total))

        def advance_to(self, done: int, loss: float | None) -> None:
            self.seen.append((done, loss))

    observer = Observer()
    with Terminal() as terminal:
        with (
            showing_progress(observer),
            ProgressBar(9, 4, "training") as progress,
            ProgressBar(3, shown=False) as other,
        ):
            progress.advance(loss=0.5)
            progress.to(7)
            other.advance()
        assert terminal.read() == ""
        with ProgressBar(9):
            pass
        assert "0/9 [" in terminal.read()
    assert observer.seen == [(4, 9), (5, 0.5), (7, None)]
