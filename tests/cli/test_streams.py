"""``bpt`` whose standard streams are full, closed or read by nobody: no traceback, no loss without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.marks import slow
from tests.support.paths import ROOT
from tests.support.spread_runs import set_up

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """A folder with a small net, its data and its solver."""
    set_up(tmp_path)
    return tmp_path


def bpt(folder: Path, redirections: str) -> subprocess.CompletedProcess[str]:
    """A short run in a shell, with these redirections of its streams."""
    command = f"{sys.executable} -m bpt train --solver solver.prototxt --set 'max_iter: 2' {redirections}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False, env=environment,
        start_new_session=True,  # without a terminal
    )  # fmt: skip


SAID = "error: the log cannot be written to stderr: No space left on device; the run continues, and fails at its end\n"
AT_THE_END = "error: the log: could not be written: not all of it, to stderr: No space left on device\n"


def test_a_log_on_a_full_disk_is_told_and_the_run_goes_on(folder: Path) -> None:
    run = bpt(folder, "2>/dev/full")
    assert run.stdout == SAID + AT_THE_END
    assert run.returncode == 1
    assert (folder / "small_iter_2.caffemodel").exists()


def test_nowhere_to_tell_it(folder: Path) -> None:
    run = bpt(folder, ">/dev/full 2>/dev/full")
    assert run.returncode == 1
    assert (folder / "small_iter_2.solverstate").exists()


def test_a_log_that_nobody_reads(folder: Path) -> None:
    """The reader has gone before the first line."""
    run = bpt(folder, "2>&1 >out | exec sleep 0; cat out")
    assert (
        "error: the log cannot be written to stderr: Broken pipe; the run continues, and fails at its end" in run.stdout
    )
    assert (folder / "small_iter_2.caffemodel").exists()


@pytest.mark.parametrize("closed", [slow("2>&-"), slow(">&- 2>&-"), "<&- >&- 2>&-"])
def test_closed_streams(closed: str, folder: Path) -> None:
    """No file of the run takes a closed stream's place."""
    run = bpt(folder, closed)
    assert run.returncode == 0
    assert run.stderr == ""
    assert (folder / "small_iter_2.caffemodel").exists()
    assert ("Optimization Done" in run.stdout) == (">&- 2" not in closed)
