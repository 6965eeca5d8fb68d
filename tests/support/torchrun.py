"""Starts programs on several ranks by torchrun, for tests: ``torchrun(2, ["-m", "bpt", "train", …])``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.mpirun import mpi_environment

START = [sys.executable, "-m", "torch.distributed.run", "--standalone"]  # which takes a free port


@contextmanager
def started(n: int, argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """``torchrun`` with ``n`` ranks while it runs; what is left at the end is killed."""
    process = subprocess.Popen(
        [*START, "--nproc-per-node", str(n), *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=mpi_environment(),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for rank in (process.pid, *ranks_of(process.pid)):
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(rank, signal.SIGKILL)
        process.communicate()


def torchrun(n: int, argv: Sequence[str], timeout: float = 180.0) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` on ``n`` ranks; fails when they have not ended after ``timeout`` seconds."""
    with started(n, argv) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not done after {timeout:g} s")
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def ranks_of(launcher: int) -> list[int]:
    """The processes that ``launcher`` has started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError):  # it has just ended
            if entry.name.isdigit():
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if int(parent) == launcher and state != "Z":
                    found.append(int(entry.name))
    return found


def end_in_time(processes: Sequence[int], seconds: float) -> None:
    """Fail unless all processes have ended so many seconds from now."""
    end = time.monotonic() + seconds
    while left := [process for process in processes if _runs(process)]:
        if time.monotonic() > end:
            pytest.fail(f"processes {left} are left")
        time.sleep(0.01)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
