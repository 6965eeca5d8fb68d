"""Log lines and tables."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.base.log import GlogFormatter, LogFileHandler, LogPlaces, columns, number, start_logging


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
    start_logging(places=LogPlaces((LogFileHandler(path, path.open("w")),), is_elsewhere=True))
    logger.info("Solving LeNet")
    logger.warning("The host is busy")
    start_logging()  # closes the file
    assert capsys.readouterr().err == "warning: The host is busy\n"
    assert [line.partition("] ")[2] for line in path.read_text().splitlines()] == ["Solving LeNet", "The host is busy"]


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
