"""Windows of processes, and the memory that they share."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from bpt.base.errors import LostRankError
from bpt.system.comm import window
from bpt.system.comm.processes import Peers, ProcessWindow, identity, refusal, reserve, shared_folder, shortage

MIB = 2**20


def test_windows_are_where_open_mpi_is_told(tmp_path: Path) -> None:
    assert shared_folder({"OMPI_MCA_osc_sm_backing_directory": str(tmp_path)}) == tmp_path
    assert shared_folder({}) in {Path("/dev/shm"), None}


@pytest.mark.parametrize(("nbytes", "free"), [(0, MIB), (5000, MIB + 5000), (3 * MIB, 64 * MIB)])
def test_there_is_room_if_a_mebibyte_is_left_for_the_library(nbytes: int, free: int, tmp_path: Path) -> None:
    assert shortage(nbytes, "a", tmp_path, free) == ""


@pytest.mark.parametrize(("nbytes", "free"), [(0, MIB - 1), (5000, MIB + 4999), (100 * MIB, 64 * MIB)])
def test_a_shortage_is_told_with_bytes_host_and_remedy(nbytes: int, free: int, tmp_path: Path) -> None:
    line = shortage(nbytes, "node7", tmp_path, free)
    start = f"the ranks on host node7 cannot share {nbytes} bytes of memory: {tmp_path} has {free} bytes left. "
    assert line.startswith(start)
    assert "mpirun --mca osc_sm_backing_directory DIR" in line
    assert "\n" not in line


def test_the_system_is_asked_what_is_free(tmp_path: Path) -> None:
    assert shortage(1, "a", tmp_path) == ""
    assert "cannot share 1152921504606846976 bytes" in shortage(2**60, "a", tmp_path)


def test_what_is_enlarged_is_the_file_system() -> None:
    assert "remount,size=… /proc;" in refusal(1, "a", Path("/proc/self/fd"))


def test_a_folder_that_is_not_there_is_told_and_none_is_not(tmp_path: Path) -> None:
    assert f"{tmp_path}/none, named by osc_sm_backing_directory, is not a folder" in shortage(
        1, "a", tmp_path / "none", 9
    )
    assert shortage(2**60, "a", None) == ""
    assert "the system has no more" in refusal(1, "a", None)


def test_memory_is_filled_with_zeros() -> None:
    memory = np.full(10_000, 7, np.uint8)
    assert reserve(memory[1:-1])
    assert (memory[0], memory[-1], memory[1:-1].any()) == (7, 7, False)
    assert reserve(memory[:0])


@pytest.mark.parametrize("there", [0, 2])
def test_memory_that_is_not_there_is_noticed_and_does_not_end_the_process(there: int) -> None:
    """Of 3 pages of a mapped file only some are in it: a store into the others would be a SIGBUS."""
    with tempfile.TemporaryFile() as file:
        file.truncate(3 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), 3 * mmap.PAGESIZE) as mapped:
            file.truncate(there * mmap.PAGESIZE)
            memory = np.frombuffer(mapped, np.uint8)
            assert not reserve(memory)
            del memory


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for handles of processes")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it, and return when it is dead but not yet reaped, as under a launcher that is busy."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def of(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    return process.pid, identity()[1]


@linux
def test_a_process_is_gone_when_it_has_ended_reaped_or_not(sleeper: subprocess.Popen[bytes]) -> None:
    peers = Peers({3: identity(), 5: of(sleeper)})
    assert peers.gone() == []
    end(sleeper)
    assert peers.gone() == [5]
    sleeper.wait()
    assert peers.gone() == [5]
    peers.close()
    assert peers.gone() == []


def test_where_there_are_no_handles_a_process_is_gone_when_it_is_reaped(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: int) -> int:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    peers = Peers({3: identity(), 5: of(sleeper)})
    assert peers.gone() == []
    sleeper.kill()
    sleeper.wait()
    assert peers.gone() == [5]
    peers.close()


def test_another_user_s_process_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, signal: int = 0) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    monkeypatch.setattr(os, "kill", refuse)
    assert Peers({5: identity()}).gone() == []


def test_processes_of_another_namespace_are_not_asked(sleeper: subprocess.Popen[bytes]) -> None:
    """Their ids mean other processes here, or none."""
    process, space = of(sleeper)
    peers = Peers({5: (process, space + 1)})
    sleeper.kill()
    sleeper.wait()
    assert peers.gone() == []


@linux
def test_handles_are_closed(sleeper: subprocess.Popen[bytes]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    peers = Peers({5: of(sleeper)})
    assert len(os.listdir("/proc/self/fd")) == before + 1
    peers.close()
    assert len(os.listdir("/proc/self/fd")) == before


class Win:
    """Notes what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        return lambda: self.calls.append(name)


def window_with(process: subprocess.Popen[bytes], win: Win) -> ProcessWindow:
    part = np.zeros(1, np.uint8)
    peers = Peers({5: of(process)})

    def explain(gone: Sequence[int]) -> LostRankError | None:
        return LostRankError(f"ranks {gone} are gone", gone) if gone else None

    return ProcessWindow([part], lambda method: nullcontext(), cast(Any, win), peers, explain)


def test_a_wait_for_a_process_that_ends_names_its_rank(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "_DOUBT", 0.0)
    win, looks = Win(), []

    def done() -> bool:
        looks.append(list(win.calls))
        if len(looks) == 3:
            sleeper.kill()
            sleeper.wait()
        return False

    with pytest.raises(LostRankError, match=r"^ranks \[5\] are gone$"):
        window_with(sleeper, win).wait(done)
    assert len(looks) >= 4
    assert looks[:4] == [["Sync"] * number for number in (1, 2, 3, 4)]  # one before each look


def test_what_a_process_did_before_it_ended_counts(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look comes too early, then the process does its part and ends, then it is looked after."""
    monkeypatch.setattr(window, "_DOUBT", 0.0)
    sleeper.kill()
    looks: list[bool] = []

    def done() -> bool:
        looks.append(len(looks) == 1)
        return looks[-1]

    w = window_with(sleeper, Win())
    sleeper.wait()
    w.wait(done)
    assert looks == [False, True]


def test_free_ends_the_epoch_before_the_window(sleeper: subprocess.Popen[bytes]) -> None:
    win = Win()
    window_with(sleeper, win).Free()
    assert win.calls == ["Unlock_all", "Free"]
