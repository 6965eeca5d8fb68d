"""Room for shared memory, by made-up numbers; and memory that is not there."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import numpy as np
import pytest

from bpt.comm.shared_memory import folder, refusal, shortage, take

MIB = 2**20


def test_windows_are_where_open_mpi_is_told(tmp_path: Path) -> None:
    assert folder({"OMPI_MCA_osc_sm_backing_directory": str(tmp_path)}) == tmp_path
    assert folder({}) in {Path("/dev/shm"), None}


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
    assert f"{tmp_path}/none, named by osc_sm_backing_directory, is no folder" in shortage(1, "a", tmp_path / "none", 9)
    assert shortage(2**60, "a", None) == ""
    assert "the system has no more" in refusal(1, "a", None)


def test_memory_is_filled_with_zeros() -> None:
    memory = np.full(10_000, 7, np.uint8)
    assert take(memory[1:-1])
    assert (memory[0], memory[-1], memory[1:-1].any()) == (7, 7, False)
    assert take(memory[:0])


@pytest.mark.parametrize("there", [0, 2])
def test_memory_that_is_not_there_is_noticed_and_does_not_end_the_process(there: int) -> None:
    """Of 3 pages of a mapped file only some are in it: a store into the others would be a SIGBUS."""
    with tempfile.TemporaryFile() as file:
        file.truncate(3 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), 3 * mmap.PAGESIZE) as mapped:
            file.truncate(there * mmap.PAGESIZE)
            memory = np.frombuffer(mapped, np.uint8)
            assert not take(memory)
            del memory
