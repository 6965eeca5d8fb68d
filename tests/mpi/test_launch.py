"""Ranks that mpirun has started: what they find, and what is told when it cannot work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bpt.system.comm.cores import allowed_cpus, physical_cores
from tests.support.mpirun import mpi_environment, mpirun, needs_mpi

pytestmark = needs_mpi

ARGV = [sys.executable, "-m", "tests.mpi.launched_rank"]


def facts(ranks: int, *options: str, threads: str = "", oversubscribe: bool = True) -> list[list[Any]]:
    done = mpirun(ranks, ARGV, env={"OMP_NUM_THREADS": threads}, options=options, oversubscribe=oversubscribe)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(json.loads(line) for line in done.stdout.splitlines())


def test_ranks_find_each_other_and_share_the_node() -> None:
    cores = physical_cores(allowed_cpus())
    ranks = facts(3)
    assert sorted(found[4] for found in ranks) == [[0, 3], [1, 3], [2, 3]]  # mpirun may number them in another order
    for rank, found in enumerate(ranks):
        assert found[:4] == [rank, 3, max(1, cores // 3), sorted(allowed_cpus())]
        assert found[5] == [rank, 3]
        assert "MPI" in found[6]["library"]
        assert found[6]["fault tolerance"] == "off"
        assert found[6]["device memory"] != "unknown"  # Open MPI says it
        assert found[6]["threads"] == "MPI_THREAD_MULTIPLE"
        assert found[7:] == [True, "1", "^ofi"]


def test_a_binding_that_nobody_asked_for_is_undone() -> None:
    """Open MPI binds one rank, or two, to a core each, so that a rank would have one thread on a node of 64."""
    ((_, _, threads, cpus, *_),) = facts(1, oversubscribe=False)
    assert cpus == sorted(allowed_cpus())
    assert threads == physical_cores(allowed_cpus())


@pytest.mark.skipif(physical_cores(allowed_cpus()) < 2, reason="needs two cores")
def test_a_binding_that_the_user_asked_for_stays() -> None:
    ((_, _, threads, cpus, *_),) = facts(1, "--bind-to", "core", oversubscribe=False)
    assert physical_cores(set(cpus)) == 1
    assert threads == 1


def test_fault_tolerance_threads_and_transports_as_asked_for() -> None:
    for found in facts(2, "--with-ft", "ulfm", "--mca", "btl", "self,sm", threads="3"):
        assert found[2] == 3
        assert found[9] == "self,sm"
        assert found[6]["fault tolerance"] == "on"


def run_as_rank_0_of_2(tmp_path: Path, variables: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    environment = mpi_environment({variables[0]: "2", variables[1]: "0"})
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"
    return subprocess.run(ARGV, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_launcher_of_another_mpi_is_refused(tmp_path: Path) -> None:
    """Each rank would find itself alone, and train the whole by itself."""
    done = run_as_rank_0_of_2(tmp_path, ("PMI_SIZE", "PMI_RANK"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: the launcher says that there are 2 ranks, but ")
    assert "sees 1: the launcher belongs to another MPI. Start with the mpirun of the MPI that" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("module", "raised"),
    [
        ("raise ImportError('No module named mpi4py')", "No module named mpi4py"),
        (
            "raise RuntimeError('cannot load MPI library\\nlibmpi.so.12: no such file')",
            "cannot load MPI library libmpi.so",
        ),
    ],
)
def test_without_mpi_the_remedy_is_told(tmp_path: Path, module: str, raised: str) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py/__init__.py").write_text(module)
    done = run_as_rank_0_of_2(tmp_path, ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: a launcher has started this process, but MPI cannot be used: {raised}")
    assert "pip install 'bpt[mpi]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_under_mpirun_too_that_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('none')")
    done = mpirun(3, ARGV, env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{mpi_environment()['PYTHONPATH']}"})
    assert done.returncode == 2
    assert [line[:40] for line in done.stderr.splitlines() if "error:" in line] == [
        "error: a launcher has started this proce"
    ]
