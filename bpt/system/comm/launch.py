"""The start of this process: alone, or by a launcher (mpirun, srun, torchrun) as one of many ranks.

Only the launcher's environment is read, so that a single process never loads MPI. Under torchrun there is no MPI: all
messages are torch.distributed's.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from bpt.base.errors import UserError
from bpt.system.comm import pmix, proxy
from bpt.system.comm.base import Communicator
from bpt.system.comm.cores import longest_sleep, unbind_affinity
from bpt.system.comm.serial import SerialCommunicator

# The environment variables of launchers: the number of ranks (None: not given), and the rank.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI's mpirun
    ("PMI_SIZE", "PMI_RANK"),  # Hydra (MPICH, Intel MPI, MVAPICH), srun --mpi=pmi2, Cray's aprun
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),  # MVAPICH's mpirun_rsh
    (None, "PMIX_RANK"),  # srun --mpi=pmix, prterun
)
# Rank among the ranks of this node, and their number.
_LOCAL = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
)
_TORCHRUN = "TORCHELASTIC_RUN_ID"  # set by torchrun, with those of the next two lines
_TORCHRUN_RANK = "RANK"
_TORCHRUN_LOCAL = ("LOCAL_RANK", "LOCAL_WORLD_SIZE")
_OMP_THREADS = "OMP_NUM_THREADS"
_YIELD = "OMPI_MCA_mpi_yield_when_idle"
_WINDOWS = "OMPI_MCA_osc"
_TRANSPORTS = "OMPI_MCA_btl"
_PR_SET_PDEATHSIG = 1


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a launcher has started this process. A batch job that only *could* start ranks does not count."""
    return launched_by_mpi(environment) or launched_by_torchrun(environment)


def launched_by_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the launcher of an MPI has started this process."""
    return any(rank in environment and (not size or size in environment) for size, rank in _LAUNCHERS)


def launched_by_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun has started this process; an mpirun that has started it in its turn comes first."""
    return _TORCHRUN in environment and not launched_by_mpi(environment)


def launchers_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return this process's rank by the launcher's environment, without MPI; 0 without a launcher."""
    if launched_by_torchrun(environment):
        return int(environment[_TORCHRUN_RANK])
    return next((int(environment[rank]) for _, rank in _LAUNCHERS if rank in environment), 0)


def world() -> Communicator:
    """Return all ranks that were started together with this process; only it, if there was no launcher.

    It starts MPI or, under torchrun, torch.distributed; undoes bindings to cores that nobody requested; and lets the
    process die with its launcher.

    Raises:
        UserError: the ranks cannot reach each other: MPI or mpi4py is missing, or is not the launcher's.
    """
    if not launched():
        _refuse_tasks_without_mpi(os.environ)
        return SerialCommunicator()
    die_with_launcher()
    if launched_by_torchrun():
        from bpt.system.comm import process_group  # noqa: PLC0415  only what this run needs

        return process_group.world()
    # A rank's comm_thread waits while the rank computes. It must yield the core; Open MPI by default would spin.
    os.environ.setdefault(_YIELD, "1")
    # The only component for shared windows; Open MPI would try others first, and one of them prints a complaint.
    os.environ.setdefault(_WINDOWS, "sm")
    # Open MPI's libfabric transport serves windows between hosts only, which bpt does not have. Where it finds
    # no device for that, it sleeps for a second. The environment has the settings of --mca and of Open MPI's files.
    os.environ.setdefault(_TRANSPORTS, "^ofi")
    try:
        from bpt.system.comm import mpi  # noqa: PLC0415  starts MPI, which a process without a launcher must not
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"a launcher has started this process, but MPI cannot be used: {' '.join(str(error).split())}. "
            "pip install 'bpt[mpi]' brings mpi4py and an MPI with its mpirun; with a cluster's own MPI, load its "
            "module and pip install mpi4py"
        ) from error
    comm = mpi.world()
    if proxy.own_proxy():
        pmix.outlive_launcher()
    unbind_affinity()
    comm.longest_sleep = max(comm.allgather(longest_sleep(local_ranks(comm)[1])))
    expected = next((int(os.environ[size]) for size, _ in _LAUNCHERS if size and size in os.environ), comm.size)
    if comm.size != expected:
        raise UserError(
            f"the launcher says that there are {expected} ranks, but {comm.describe()['library']}, which mpi4py has "
            f"loaded, sees {comm.size}: the launcher belongs to another MPI. Start with the mpirun of the MPI that "
            "mpi4py uses (pip install 'bpt[mpi]' puts one beside bpt), or build mpi4py for the launcher's MPI "
            "(pip install --no-binary mpi4py mpi4py)"
        )
    return comm


def find_mpirun() -> str | None:
    """Return the mpirun that pip has installed beside this Python or, on a cluster, that of the loaded module."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


def local_ranks(comm: Communicator, environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return this process's rank among those of ``comm`` on its node, and their number. May be a collective call."""
    for rank, size in (_TORCHRUN_LOCAL,) if launched_by_torchrun(environment) else _LOCAL:
        if rank in environment and size in environment:
            return int(environment[rank]), int(environment[size])
    hosts = comm.allgather(comm.host)
    return hosts[: comm.rank].count(comm.host), hosts.count(comm.host)


def die_with_launcher() -> None:
    """Let this process be killed when its launcher is, so that it does not remain as an orphan.

    A launcher passes on Ctrl-C and other signals that it can handle; this is for a launcher killed by SIGKILL. It does
    nothing without a launcher, under Slurm, which cleans up itself, or on other systems than Linux. Call it before MPI
    starts, which then fails if the launcher is already gone. For a rank with a proxy, the proxy does this.
    """
    if proxy.own_proxy() or not launched() or not sys.platform.startswith("linux"):
        return
    if _name(os.getppid()) != "slurmstepd":
        die_with_parent(signal.SIGKILL)


def die_with_parent(by: signal.Signals) -> None:
    """Let this process get a signal when its parent ends; on other systems than Linux it does nothing."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the request
        os.kill(os.getpid(), by)


def ignore_torchruns_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Forget that torchrun, which does not know how many cores a rank has, set one thread where the user set none.

    Call it before torch is loaded. Where the launcher's environment cannot be read, its number holds.
    """
    if not launched_by_torchrun(environment) or environment.get(_OMP_THREADS) != "1":
        return
    try:
        set_by_user = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return
    if not any(each.startswith(f"{_OMP_THREADS}=".encode()) for each in set_by_user):
        del environment[_OMP_THREADS]


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:  # it has just ended
        return ""


def _refuse_tasks_without_mpi(environment: Mapping[str, str]) -> None:
    """Refuse tasks that srun started without PMI: they do not know each other, and each would train the whole."""
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1" and "SLURM_PROCID" in environment:
        raise UserError(
            f"srun has started {tasks} tasks without MPI: each would do the whole run. Use srun --mpi=pmix (or pmi2; "
            "srun --mpi=list shows which there are) or mpirun. If each is meant to run by itself: unset "
            "SLURM_STEP_NUM_TASKS"
        )
