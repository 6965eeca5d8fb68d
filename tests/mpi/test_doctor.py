"""``bpt doctor`` over MPI, on ranks whose folders hold other things."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.golden_cases import GOLDEN
from tests.mpi.mpirun import mpirun, needs_mpi

pytestmark = needs_mpi

INPUTS = GOLDEN / "cli" / "inputs"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """One with all that the solver names, and one without the training data."""
    good, poor = tmp_path / "good", tmp_path / "poor"
    for folder in (good, poor):
        folder.mkdir()
        for name in ("solver.prototxt", "lenet_train_test.prototxt"):
            shutil.copy(INPUTS / name, folder)
        shutil.copytree(INPUTS / "digits_test_lmdb", folder / "digits_test_lmdb")
    shutil.copytree(INPUTS / "digits_train_lmdb", good / "digits_train_lmdb")
    return good, poor


def test_a_rank_whose_data_are_missing(folders: tuple[Path, Path]) -> None:
    good, poor = folders
    command = [sys.executable, "-m", "bpt", "doctor", "--solver", "solver.prototxt"]
    done = mpirun(1, [*command, ":", "-n", "1", "--wdir", str(poor), *command], options=["--wdir", str(good)])
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 ranks (the processes that work together, numbered from 0) on host")
    assert any("MPI_THREAD_" in line for line in lines)
    missing = [line for line in lines if line.startswith("  PROBLEM")]
    assert len(missing) == 1
    assert missing[0].startswith("  PROBLEM  rank 1 on host ")
    assert missing[0].endswith(f": digits_train_lmdb: no such folder (looked for {poor}/digits_train_lmdb)")
    assert any("the ranks are in different folders" in line for line in lines)
    assert any(line.endswith("LMDB digits_test_lmdb: 100 records, the same on all ranks") for line in lines)
    assert lines[-1].startswith("1 problem, ")
    assert list(good.glob(".bpt*")) == []
