"""The progress bar: on a terminal, above it the log in whole lines; elsewhere nothing."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pty
import struct
import sys
import termios

import pytest

from bpt.base.log import StderrHandler
from bpt.base.progress import ProgressBar

WIDTH = 80
MESSAGES = [f"Iteration {number}, loss = {number / 8}" for number in range(5)]


class Terminal:
    """A pseudo-terminal that is stderr within the block."""

    def __init__(self) -> None:
        self._screen, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        self._file = os.fdopen(end, "w", buffering=1)

    def __enter__(self) -> Terminal:
        self._before, sys.stderr = sys.stderr, self._file
        return self

    def __exit__(self, *error: object) -> None:
        sys.stderr = self._before
        with contextlib.suppress(OSError):  # what could not be written to a closed one
            self._file.close()

    def close_window(self) -> None:
        os.close(self._screen)

    def read(self) -> str:
        """All that was written."""
        self._file.write("\0")
        self._file.flush()
        text = b""
        while not text.endswith(b"\0"):
            text += os.read(self._screen, 65536)
        os.close(self._screen)
        return text[:-1].decode()


def log(message: str) -> None:
    StderrHandler().handle(logging.LogRecord("bpt", logging.INFO, "solver.py", 1, message, None, None))


def run(done: int = 0) -> None:
    with ProgressBar(5, done, "training") as progress:
        for message in MESSAGES:
            progress.advance(loss=0.25)
            log(message)


def screen(text: str) -> list[str]:
    """The lines that stand on a terminal after ``text``."""
    lines = []
    for line in text.split("\n"):
        cells = [" "] * WIDTH
        for part in line.split("\r"):  # each overwrites what stood there
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


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
