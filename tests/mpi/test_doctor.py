"""``bpt doctor`` over MPI, on ranks whose folders hold other things."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import mpirun, needs_mpi
from tests.support.paths import GOLDEN

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


def doctor(folders: tuple[Path, Path], *flags: str) -> subprocess.CompletedProcess[str]:
    """Examine a rank in the first folder and one in the second."""
    good, poor = folders
    command = [sys.executable, "-m", "bpt", "doctor", "--solver", "solver.prototxt", *flags]
    return mpirun(1, [*command, ":", "-n", "1", "--wdir", str(poor), *command], options=["--wdir", str(good)])


@pytest.mark.slow
def test_a_rank_whose_data_are_missing(folders: tuple[Path, Path]) -> None:
    good, poor = folders
    done = doctor(folders)
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


@pytest.mark.slow
def test_data_that_the_server_of_the_outer_layer_sends(folders: tuple[Path, Path]) -> None:
    """Only rank 0 reads any."""
    shutil.rmtree(folders[1] / "digits_test_lmdb")
    done = doctor(folders, "--set", "parallel_param { exchange: AGWU balance: IDPA ship_data: true }")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert "  ok       LMDB digits_train_lmdb: 200 records, read by rank 0 only" in lines
    assert "  ok       AGWU, balance IDPA; server on rank 0; 1 computing node" in lines
    # 60 iterations of 20; K' = 4 + floor(6 - 2.5)
    amount = "60 iterations of 20 samples are 6 passes over 200 samples (K); each worker makes 7 over its own"
    assert f"  ok       {amount}" in lines
