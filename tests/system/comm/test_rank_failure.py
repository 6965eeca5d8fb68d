"""What ranks do when some or all of them fail; here ranks are threads, in tests/mpi/test_failure.py processes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import numpy as np
import pytest

from bpt.base.errors import BptError, DataError, FileError, LostRankError, UsageError
from bpt.system.comm import rank_failure as failure
from bpt.system.comm.base import Communicator
from bpt.system.comm.rank_failure import Failure, run, run_on
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.thread_ranks import Killed, run_ranks

Command = Callable[[Communicator], None]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all ranks fail, none may run out of patience because the machine is busy."""
    monkeypatch.setattr(failure, "GRACE", 60)
    monkeypatch.setattr(failure, "GRACE_WITH_USERS", (60, 60))
    monkeypatch.setattr(Communicator, "host", "node7")


@pytest.fixture
def _hasty(_patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests where some ranks never fail."""
    monkeypatch.setattr(failure, "GRACE", 0.4)
    monkeypatch.setattr(failure, "GRACE_WITH_USERS", (0.4, 0.5))


def fail_with(error: BaseException) -> None:
    raise error


def statuses(command: Command, ranks: int = 3) -> list[int]:
    return run_ranks(ranks, lambda comm: run_on(comm, command))


def aborted_with(command: Command, ranks: int = 3) -> object:
    with pytest.raises(SystemExit) as exit:
        statuses(command, ranks)
    return exit.value.code


def test_ranks_that_are_well_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert statuses(lambda comm: comm.Barrier()) == [0, 0, 0]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UsageError("no such flag"), 2, "error: no such flag"),
        (DataError("record 7"), 1, "error: record 7"),
        (OSError(28, "No space left on device", "a"), 1, "error: [Errno 28] No space left on device: 'a'"),
        (MemoryError(), 1, "error: out of memory"),
        (KeyboardInterrupt(), 1, "error: interrupted"),
    ],
)
def test_what_all_ranks_see_is_told_once(
    error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert statuses(lambda comm: fail_with(error)) == [status] * 3
    assert capsys.readouterr() == ("", f"{line}\n")


def test_different_errors_of_all_ranks_are_told_by_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert statuses(lambda comm: fail_with(FileError(f"{comm.rank}.lmdb", "not here"))) == [2, 2, 2]
    assert capsys.readouterr().err == "error: rank 0 (host node7): 0.lmdb: not here\n"


def test_different_kinds_of_errors_end_with_the_status_of_what_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def command(comm: Communicator) -> None:
        fail_with(DataError("record") if comm.rank == 0 else UsageError("flag"))

    assert statuses(command) == [1, 1, 1]
    assert capsys.readouterr().err == "error: rank 0 (host node7): record\n"


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize(("error", "status"), [(DataError("record 7"), 1), (UsageError("record 7"), 2)])
def test_the_lowest_rank_that_fails_tells_and_aborts(
    error: BptError, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(comm: Communicator) -> None:
        if comm.rank in {1, 3}:
            raise error
        comm.Barrier()  # for ever

    assert aborted_with(command, ranks=4) == status
    assert capsys.readouterr().err == "error: rank 1 (host node7): record 7\n"


@pytest.mark.usefixtures("_hasty")
def test_a_rank_that_is_done_does_not_keep_another_from_failing(capsys: pytest.CaptureFixture[str]) -> None:
    assert aborted_with(lambda comm: fail_with(DataError("late")) if comm.rank == 2 else None) == 1
    assert capsys.readouterr().err == "error: rank 2 (host node7): late\n"


def test_a_bug_is_told_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert statuses(lambda comm: fail_with(KeyError("conv1"))) == [1, 1, 1]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines.count(lines[0]) == 1
    assert lines[-1] == "error: a bug in bpt: KeyError: 'conv1'"


def test_ranks_may_be_as_late_with_a_mistake_of_the_user_s_as_the_first_one_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failure, "GRACE", 1)
    monkeypatch.setattr(failure, "GRACE_WITH_USERS", (3, 7))
    mistake, lost = Failure("no such file", status=2), Failure("record 7", status=1)
    assert [mistake.grace(took) for took in (0, 2, 5, 100)] == [3, 3, 5, 7]
    assert [lost.grace(took) for took in (0, 100)] == [1, 1]


def test_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(variable, raising=False)
    sizes = []
    assert run(lambda comm: sizes.append(comm.size)) == 0
    assert sizes == [1]
    assert run(lambda comm: fail_with(UsageError("no such flag"))) == 2
    assert capsys.readouterr() == ("", "error: no such flag\n")
    with pytest.raises(SystemExit):  # what --help does
        run(lambda comm: fail_with(SystemExit(0)))


def test_notices_do_not_mix_with_the_command_s_own_messages() -> None:
    def command(comm: Communicator) -> None:
        other = 1 - comm.rank
        requests = [comm.Irecv(np.zeros(3, np.int64), other), comm.Isend(np.arange(3), other)]
        if comm.rank:
            fail_with(DataError("a"))
        for request in requests:
            request.Wait()
        fail_with(DataError("a"))

    assert statuses(command, 2) == [1, 1]


def tolerant_statuses(command: Command, ranks: int = 3) -> list[int]:
    """Those of the ranks that have not vanished."""
    return run_ranks(ranks, lambda comm: run_on(comm, command), tolerant=True)


def test_with_fault_tolerance_ranks_that_are_well_wait_until_all_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []
    all_done_for: list[bool] = []

    def work(comm: Communicator) -> int:
        def command(comm: Communicator) -> None:
            if comm.rank == 1:
                raise Killed
            if comm.rank == 0:
                comm.Recv(np.zeros(1), 2)
            else:
                comm.Send(np.zeros(1), 0)
            done.append(comm.rank)

        status = run_on(comm, command)
        all_done_for.append(sorted(done) == [0, 2])
        return status

    assert run_ranks(3, work, tolerant=True) == [0, 0]
    assert all_done_for == [True, True]
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("_hasty")
def test_with_fault_tolerance_others_may_go_on_without_a_rank_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def command(comm: Communicator) -> None:
        if comm.rank == 1:
            raise DataError("record 7")
        if comm.rank == 2:
            with pytest.raises(LostRankError):
                comm.Recv(np.zeros(1), 1)

    assert tolerant_statuses(command) == [0, 0]
    assert capsys.readouterr().err == "error: rank 1 (host node7): record 7\n"


@pytest.mark.usefixtures("_hasty")
def test_with_fault_tolerance_those_that_fail_without_a_failed_rank_say_nothing_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure, "LAST", 60)

    def command(comm: Communicator) -> None:
        if comm.rank == 1:
            raise DataError("record 7")
        comm.Barrier()

    assert tolerant_statuses(command) == [1, 1]
    assert capsys.readouterr().err == "error: rank 1 (host node7): record 7\n"


def test_with_fault_tolerance_survivors_that_cannot_go_on_tell_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    def command(comm: Communicator) -> None:
        if comm.rank == 1:
            raise Killed
        comm.Barrier()

    assert tolerant_statuses(command) == [1, 1]
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"error: rank [02] \(host node7\): rank 1 \(host .*\) is gone \(noticed in Barrier\): ", line)


def test_with_fault_tolerance_a_failure_at_the_end_leaves_the_others_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert tolerant_statuses(lambda comm: fail_with(DataError("disk")) if comm.rank == 0 else None) == [1, 0, 0]
    assert capsys.readouterr().err == "error: rank 0 (host node7): disk\n"


def test_with_fault_tolerance_what_all_ranks_see_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert tolerant_statuses(lambda comm: fail_with(UsageError("no such flag"))) == [2, 2, 2]
    assert capsys.readouterr().err == "error: no such flag\n"


class Tolerant(SerialCommunicator):
    def describe(self) -> dict[str, str]:
        return super().describe() | {"fault tolerance": "on"}


@pytest.mark.parametrize(("kind", "ended"), [(Tolerant, [0]), (SerialCommunicator, [])])
def test_with_fault_tolerance_mpi_is_not_ended_in_its_own_way(
    kind: type[Communicator], ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would wait for the dead."""
    exits: list[int] = []
    monkeypatch.setattr(failure, "world", kind)
    monkeypatch.setattr(failure, "launched", lambda: True)
    monkeypatch.setattr(os, "_exit", exits.append)
    assert run(lambda comm: None) == 0
    assert exits == ended
