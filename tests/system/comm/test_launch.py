"""What launchers leave in the environment. With real launchers: tests/mpi/test_launch.py."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from bpt.base.errors import UserError
from bpt.system.comm.launch import (
    ignore_torchruns_threads,
    launched,
    launched_by_torchrun,
    launchers_rank,
    local_ranks,
    world,
)
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.thread_ranks import run_ranks

LAUNCHERS = {
    "Open MPI's mpirun": {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3"},
    "Hydra": {"PMI_SIZE": "4", "PMI_RANK": "3", "PMI_FD": "9"},
    "MVAPICH": {"MV2_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_RANK": "3"},
    "torchrun": {"TORCHELASTIC_RUN_ID": "none", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
    "srun --mpi=pmix": {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "PMIX_RANK": "3"},
    "srun --mpi=pmi2": {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "PMI_RANK": "3", "PMI_SIZE": "4"},
}


@pytest.mark.parametrize("environment", LAUNCHERS.values(), ids=LAUNCHERS)
def test_launchers_are_known_by_their_environment(environment: dict[str, str]) -> None:
    assert launched({"PATH": "/bin", **environment})
    assert launchers_rank({"PATH": "/bin", **environment}) == 3


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", "SLURM_PROCID": "0"},
        {"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"OMPI_MCA_btl": "tcp,self", "OMPI_ALLOW_RUN_AS_ROOT": "1"},
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    ],
    ids=["nothing", "a batch script", "a shell of srun's", "settings", "another program's ranks"],
)
def test_a_process_that_no_launcher_has_started_is_alone(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not launched(environment)
    assert launchers_rank(environment) == 0
    monkeypatch.setattr("os.environ", environment)
    assert isinstance(world(), SerialCommunicator)


def test_tasks_that_do_not_know_of_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else "srun -n 4 bpt train" would train four times, and write the same files."""
    monkeypatch.setattr("os.environ", {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"})
    with pytest.raises(UserError, match=r"srun has started 4 tasks without MPI.*srun --mpi=pmix"):
        world()


def test_alone_mpi_is_not_loaded() -> None:
    start = "import sys, bpt.cli.main, bpt.system.comm.launch as l; l.world()"
    code = f"{start}; sys.exit(any('mpi4py' in m for m in sys.modules))"
    environment = {"PATH": "/bin", "PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.parametrize(
    "environment",
    [
        {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"},
        {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3"},
        {"MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_LOCAL_SIZE": "3"},
    ],
)
def test_place_on_the_node_by_the_environment(environment: dict[str, str]) -> None:
    assert local_ranks(SerialCommunicator(), environment) == (1, 3)


def test_place_on_the_node_by_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"rank 0": "a", "rank 1": "b", "rank 2": "a", "rank 3": "b", "rank 4": "b"}
    monkeypatch.setattr("socket.gethostname", lambda: hosts[threading.current_thread().name])
    places = run_ranks(5, lambda comm: local_ranks(comm, {}))
    assert places == [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_an_mpirun_inside_of_torchrun_comes_first() -> None:
    both = LAUNCHERS["torchrun"] | {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    assert not launched_by_torchrun(both)
    assert launchers_rank(both) == 0


@pytest.mark.parametrize(
    ("set_by_user", "threads"),
    [(b"PATH=/bin\0", None), (b"PATH=/bin\0OMP_NUM_THREADS=1\0", "1")],
    ids=["torchrun's", "the user's"],
)
def test_torchruns_one_thread_is_forgotten_but_not_the_users(
    set_by_user: bytes, threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = LAUNCHERS["torchrun"] | {"OMP_NUM_THREADS": "1"}
    monkeypatch.setattr("bpt.system.comm.launch.Path.read_bytes", lambda path: set_by_user)
    ignore_torchruns_threads(environment)
    assert environment.get("OMP_NUM_THREADS") == threads
    alone = {"OMP_NUM_THREADS": "1"}
    ignore_torchruns_threads(alone)
    assert alone == {"OMP_NUM_THREADS": "1"}


def test_torchrun_says_which_rank_of_its_node_this_is() -> None:
    environment = {**LAUNCHERS["torchrun"], "LOCAL_WORLD_SIZE": "2"}
    assert run_ranks(1, lambda comm: local_ranks(comm, environment)) == [(1, 2)]
