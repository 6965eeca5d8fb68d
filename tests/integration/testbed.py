"""Starts ``scripts/testbed``, for tests."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.testbeds import bed, cgroups, mpirun
from tests.support.paths import ROOT

PROGRAM = str(ROOT / "scripts" / "testbed")
PATIENCE = 100.0  # seconds, where nothing is said about time
PROMPT = 10.0  # seconds in which a job that has lost a rank must have ended

REASON = bed.why_not()
needs_testbed = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.usefixtures("alone")]
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not shutil.which("mpirun", path=mpirun.job_path()),
    reason="needs mpi4py and mpirun",
)


def up(hosts: str = "a:1.0,b:0.25", *options: str) -> None:
    program("up", "--hosts", hosts, *options)


def program(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == status, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@contextmanager
def started(*words: str, ready: str = "ready") -> Iterator[subprocess.Popen[str]]:
    """A job that has printed ``ready``, to either of its streams; if the test fails, ``down`` ends it."""
    words = (sys.executable, PROGRAM, "run", *words)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        assert job.stdout
        try:
            assert any(ready in line for line in job.stdout), f"ended before it was ready, status {job.wait()}"
            yield job
        finally:
            if job.poll() is None:
                bed.down()


def ended(job: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and further output of a job that ends in time and leaves no process behind."""
    status = job.wait(PROMPT)
    assert job.stdout
    told = job.stdout.read()  # to its end: nobody holds the other side any more
    assert running() == []
    return status, told


def running() -> list[int]:
    """The processes on the test bed."""
    return cgroups.processes(cgroups.find().root)


def rank_on(host: str, name: str) -> int:
    """The process on a host that runs the program ``name``."""
    found = cgroups.processes(cgroups.find().host(host))
    ranks = [pid for pid in found if cgroups.program(pid) == name]
    return max(ranks, key=_started)  # the launcher starts a proxy, and that the rank


def _started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
