"""A rank that fails ends the job on all ranks within 10 s, with one message, and leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time

from tests.support.mpirun import all_end, in_session, mpirun, needs_mpi, started

pytestmark = needs_mpi

SECONDS = 60
ARGV = [sys.executable, "-m", "tests.mpi.failing_ranks"]


def fail(how: str, *options: str, who: int = 1, ranks: int = 3) -> subprocess.CompletedProcess[str]:
    """Let ranks fail, and see that they end in time; before that, start-up may take long on a busy machine."""
    done = mpirun(ranks, [*ARGV, how, str(who)], timeout=120, options=options)
    begun = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("at ")]
    assert time.time() - min(begun) < SECONDS
    return done


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Our own lines; the launcher may add some.

    (And Open MPI 5's prterun crashes now and then after an abort; so tests of one ask for some status but 0.)
    """
    return [line for line in done.stderr.splitlines() if line.startswith("error:")]


def test_a_mistake_that_all_ranks_see_is_told_once_and_all_leave_in_good_order() -> None:
    done = fail("all_see_a_mistake")
    assert errors(done) == ["error: no such flag"]
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "MPI_ABORT" not in done.stderr


def test_a_lost_record_names_rank_host_and_reason() -> None:
    """The other ranks wait for this one in a helper thread, and would for ever."""
    done = fail("lost_record", who=1)
    assert errors(done) == [f"error: rank 1 (host {socket.gethostname()}): a.lmdb: record 7 cannot be read"]
    assert done.returncode
    assert "Traceback" not in done.stderr


def test_a_bug_shows_where_it_is_on_one_rank() -> None:
    done = fail("bug", who=0, ranks=2)
    assert errors(done) == [f"error: rank 0 (host {socket.gethostname()}): a bug in bpt: KeyError: 'conv1'"]
    assert done.stderr.count("Traceback") == 1
    assert 'failing_ranks.py", line' in done.stderr
    assert done.returncode


def test_ranks_that_compute_and_call_nobody_are_ended_too() -> None:
    done = fail("lost_record_while_others_compute", who=2)
    assert errors(done) == [f"error: rank 2 (host {socket.gethostname()}): a.lmdb: record 8 cannot be read"]
    assert done.returncode


def test_ranks_that_all_fail_while_a_helper_thread_is_in_a_call_do_not_hang_at_the_end() -> None:
    done = fail("all_lose_records_with_a_call_under_way", who=1)
    assert errors(done) == ["error: a.lmdb: all records cannot be read"]
    assert done.returncode


def test_a_rank_that_is_killed_is_named_by_the_launcher() -> None:
    """As the kernel does when memory is out."""
    done = fail("killed")
    assert done.returncode != 0
    text = " ".join(done.stderr.split())
    assert re.search(rf"rank 1 with PID \d+ on node {socket.gethostname()} exited on signal 9", text), text
    assert "Traceback" not in text


def test_with_fault_tolerance_the_survivors_name_the_rank_that_was_killed() -> None:
    host = socket.gethostname()
    done = fail("killed", "--with-ft", "ulfm")
    (error,) = errors(done)
    assert re.match(
        rf"error: rank [02] \(host {host}\): rank 1 \(host {host}\) is gone \(noticed in Allreduce\): ", error
    )
    assert "--snapshot auto" in error
    assert done.returncode != 0


def test_with_fault_tolerance_a_rank_that_fails_is_lost_to_those_that_wait_for_it_and_tells_for_all() -> None:
    done = fail("lost_record", "--with-ft", "ulfm")
    assert errors(done) == [f"error: rank 1 (host {socket.gethostname()}): a.lmdb: record 7 cannot be read"]
    assert done.returncode == 1


def test_a_launcher_that_is_killed_takes_its_ranks_along() -> None:
    with started(2, [*ARGV, "none_until_the_launcher_is_killed", "0"]) as process:
        assert process.stdout is not None
        ranks = [int(process.stdout.readline().split()[2]) for _ in range(2)]
        assert set(ranks) <= set(in_session(process.pid))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        all_end(process.pid, SECONDS)
