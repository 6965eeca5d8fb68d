"""Memory that processes share, where processes matter: one is killed, the memory is too small, nobody frees it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time

from tests.support.mpirun import mpirun, needs_mpi

pytestmark = needs_mpi

SECONDS = 60
HOST = socket.gethostname()


def ranks(n: int, how: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the ranks, and see that they end in time; before that, start-up may take long on a busy machine."""
    done = mpirun(n, [sys.executable, "-m", "tests.mpi.window_ranks", how], timeout=120, options=options)
    begun = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("at ")]
    assert time.time() - min(begun) < SECONDS
    return done


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Our own lines; of the launcher's own, some end in a zero byte and not in a new line."""
    return [line for line in done.stderr.replace("\0", "").splitlines() if line.startswith("error:")]


def test_those_that_wait_for_a_rank_that_is_killed_read_what_it_has_written_and_name_it() -> None:
    done = ranks(3, "last_is_killed", "--with-ft", "ulfm")
    read = [line for line in done.stdout.splitlines() if not line.startswith("at ")]
    assert sorted(read) == ["rank 0 has read 7", "rank 1 has read 7"]
    (error,) = errors(done)
    # Whoever notices first tells it.
    assert re.match(rf"error: rank [01] \(host {HOST}\): rank 2 \(host {HOST}\) is gone \(noticed in wait\): ", error)
    assert "--snapshot auto" in error
    assert done.returncode != 0


def test_without_fault_tolerance_the_launcher_ends_those_that_wait() -> None:
    done = ranks(2, "last_is_killed")
    assert done.returncode != 0
    assert re.search(r"rank 1 with PID \d+ on node \S+ exited on signal 9", " ".join(done.stderr.split()))


def test_more_memory_than_there_is_is_told_once_before_it_is_taken() -> None:
    done = ranks(2, "wants_too_much")
    (error,) = errors(done)
    assert error.startswith(f"error: the ranks on host {HOST} cannot share {2**50} bytes of memory: ")
    assert done.returncode == 1
    assert "MPI_ABORT" not in done.stderr


def test_a_window_may_be_left_to_the_end_of_the_process() -> None:
    """Also while a thread waits for what never comes."""
    done = ranks(2, "ends_without_free")
    assert (done.returncode, done.stderr) == (0, "")
