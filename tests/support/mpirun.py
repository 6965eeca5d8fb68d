"""Starts programs on several ranks, for tests: ``mpirun(2, [sys.executable, "-c", "..."])``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.paths import ROOT

_OF_A_LAUNCHER = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_", "HYDRA_")


def find_mpirun() -> str | None:
    """The mpirun of the MPI that mpi4py uses: beside the interpreter, else on the PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


needs_mpi = pytest.mark.skipif(find_mpirun() is None, reason="needs mpirun: pip install 'bpt[mpi]'")


def mpi_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for mpirun: this process's, but for what a launcher has left there, with ``env`` laid over."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(_OF_A_LAUNCHER)}
    clean |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if os.geteuid() == 0:  # Open MPI wants to be told twice
        clean |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return clean | dict(env or {})


@contextmanager
def started(
    n: int,
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    oversubscribe: bool = True,
) -> Iterator[subprocess.Popen[str]]:
    """``mpirun -n n argv`` while it runs, in a session of its own; what is left at the end is killed.

    Args:
        options: of mpirun, besides ``-n``.
        oversubscribe: whether there may be more ranks than cores.
    """
    mpirun = find_mpirun()
    assert mpirun is not None
    # A launcher that is killed leaves its folder and the ranks' shared memory behind: here, to be removed.
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="bpt-mpi-", dir=memory if memory.is_dir() else None)
    settings = "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_osc_sm_backing_directory", "PRTE_MCA_prte_tmpdir_base"
    places = dict.fromkeys(settings, folder)
    process = subprocess.Popen(
        [mpirun, "-n", str(n), *(["--oversubscribe"] if oversubscribe else []), *options, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=mpi_environment({**places, **(env or {})}),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for rank in in_session(process.pid):  # mpirun gives each rank a process group of its own
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(rank, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        shutil.rmtree(folder, ignore_errors=True)


def in_session(session: int) -> list[int]:
    """The processes of a session that still run, the leader first."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return sorted(found, key=lambda pid: (pid != session, pid))


def all_end(session: int, seconds: float) -> None:
    """Fail unless all processes of the session have ended so many seconds from now."""
    end = time.monotonic() + seconds
    while left := in_session(session):
        if time.monotonic() > end:
            pytest.fail(f"processes {left} are left")
        time.sleep(0.01)


def mpirun(
    n: int,
    argv: Sequence[str],
    timeout: float = 180.0,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    oversubscribe: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` on ``n`` ranks; fails when they have not ended after ``timeout`` seconds or leave orphans."""
    with started(n, argv, env, options, oversubscribe) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as expired:
            pytest.fail(f"not done after {timeout:g} s\n{_text(expired.stdout)}\n{_text(expired.stderr)}")
        all_end(process.pid, seconds=60)  # mpirun ends some milliseconds before the last rank is gone
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, without_warnings(stderr))


def without_warnings(stderr: str) -> str:
    """Without what the event library in Open MPI's launcher may say of the sockets of a process that was killed."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not line.startswith("[warn] Epoll "))


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
