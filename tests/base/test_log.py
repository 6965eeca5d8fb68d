"""Log lines and tables."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.base.log import (
    GlogFormatter,
    LogFileHandler,
    LogPlaces,
    check_log,
    columns,
    log_results,
    number,
    start_logging,
)
from tests.support.paths import ROOT
from tests.support.pseudo_terminal import ProgramOnTerminal, screen


def line(message: str, level: int = logging.INFO) -> str:
    record = logging.LogRecord("bpt", level, "solvers/solver.py", 45, message, None, None)
    return GlogFormatter().format(record)


def test_shape_is_glogs() -> None:
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ solver\.py:45\] Solving LeNet", line("Solving LeNet"))


@pytest.mark.parametrize(("level", "letter"), [(logging.WARNING, "W"), (logging.ERROR, "E")])
def test_level(level: int, letter: str) -> None:
    assert line("x", level)[0] == letter


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.302585093, "2.30259"), (0.01, "0.01"), (1.0, "1"), (1e-5, "1e-05"), (123456789.0, "1.23457e+08")],
)
def test_numbers_as_caffe_prints_them(value: float, text: str) -> None:
    assert number(value) == text


def test_a_library_does_not_print() -> None:
    """Whoever uses bpt from Python and has not configured ``logging`` sees nothing."""
    program = "import logging, bpt; logging.getLogger('bpt').error('look out')"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout + process.stderr == ""


def test_a_command_logs_to_stderr_once(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("bpt")
    start_logging()
    start_logging()
    logger.info("Solving LeNet")
    logger.debug("left out")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"I.*test_log\.py:\d+\] Solving LeNet\n", captured.err)


def test_a_log_elsewhere_leaves_its_warnings_on_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    logger, path = logging.getLogger("bpt"), tmp_path / "a.log"
    start_logging(places=LogPlaces((LogFileHandler(path, path.open("w", encoding="utf-8")),), is_elsewhere=True))
    logger.info("Solving LeNet")
    logger.warning("The host is busy")
    logger.info("Opening \udcfc.jpg")  # a name that is not in UTF-8
    start_logging()  # closes the file
    check_log()
    assert capsys.readouterr().err == "warning: The host is busy\n"
    texts = [line.partition(b"] ")[2] for line in path.read_bytes().splitlines()]
    assert texts == [b"Solving LeNet", b"The host is busy", b"Opening \xfc.jpg"]


def test_results_go_to_stdout_without_a_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("bpt")
    start_logging(places=LogPlaces(results_on_stdout=True))
    logger.info("Running for 2 iterations.")
    log_results(logger, ["Loss: 0.5", "accuracy = 1"])
    captured = capsys.readouterr()
    assert captured.out == "Loss: 0.5\naccuracy = 1\n"
    texts = re.findall(r"^I.* test_log\.py:\d+\] (.*)$", captured.err, re.MULTILINE)
    assert texts == ["Running for 2 iterations.", "Loss: 0.5", "accuracy = 1"]


@pytest.mark.parametrize("places", [LogPlaces(), LogPlaces(results_on_stdout=True)])
def test_other_ranks_and_other_programs_print_no_results(places: LogPlaces, capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(places=places, first=not places.results_on_stdout)
    log_results(logging.getLogger("bpt"), ["Loss: 0.5"])
    assert capsys.readouterr().out == ""


def test_results_that_cannot_be_written_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    start_logging(places=LogPlaces(results_on_stdout=True))
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(OSError, match="No space left"):
        log_results(logging.getLogger("bpt"), ["Loss: 0.5"])


SAME_PLACE = """
import logging
from bpt.base.log import LogPlaces, log_results, start_logging
start_logging(places=LogPlaces(results_on_stdout=True))
log_results(logging.getLogger("bpt"), ["Loss: 0.5"])
"""


def test_a_pipe_with_the_log_gets_results_once_as_before() -> None:
    words = [sys.executable, "-c", SAME_PLACE]
    process = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    assert re.fullmatch(r"I\d{4} .*\] Loss: 0\.5\n", process.stdout)


def test_a_terminal_gets_results_once_without_a_prefix(tmp_path: Path) -> None:
    program = ProgramOnTerminal([sys.executable, "-c", SAME_PLACE], tmp_path, os.environ | {"PYTHONPATH": str(ROOT)})
    assert program.end() == 0
    assert screen(program.text) == ["Loss: 0.5", ""]


def test_text_stands_at_the_left_and_numbers_at_the_right() -> None:
    rows = [("rank", "host", "ms", "x"), ("0", "a", "1.5", "100"), ("10", "longer", "1000.25", "")]
    assert list(columns(rows, left=2)) == [
        "rank  host         ms    x",
        "0     a           1.5  100",
        "10    longer  1000.25",  # nothing trails
    ]


def test_all_numbers() -> None:
    assert list(columns([("a", "bb"), ("100", "2")], left=0)) == ["  a  bb", "100   2"]


def test_only_a_head() -> None:
    assert list(columns([("name", "n")], left=1)) == ["name  n"]
