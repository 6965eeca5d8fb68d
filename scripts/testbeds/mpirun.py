"""How mpirun starts ranks on the test bed."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bpt.base.errors import RunError, UsageError
from scripts.testbeds.programs import call, search_path

_CHECKOUT = Path(__file__).resolve().parents[2]
_HOST_FLAGS = {"-H", "--host", "-host", "--hostfile", "-hostfile", "--machinefile", "-machinefile"}
_INSTALL = "pip install 'bpt[mpi]' brings one"


def find_mpirun() -> Path:
    """The first mpirun on ``job_path()``.

    Raises:
        RunError: there is none, or it is not Open MPI 5 or newer.
    """
    found = shutil.which("mpirun", path=job_path())
    if not found:
        raise RunError(f"no mpirun found; {_INSTALL}")
    said = call(found, "--version")
    version = re.search(r"Open MPI\) (\d+)", said)
    if not version or int(version[1]) < 5:
        first = next(iter(said.splitlines()), "nothing")
        raise RunError(f"{found} is not Open MPI 5 or newer; it says {first!r}; {_INSTALL}")
    return Path(found)


def words(slots: Mapping[str, int], ranks: int | None, options: Sequence[str]) -> list[str]:
    """mpirun and its arguments, up to the command.

    Args:
        slots: ranks by host.
        ranks: how many to start; ``None``: one for each slot.
        options: more of mpirun's own.

    Raises:
        UsageError: more ranks than slots, or hosts named among the options.
        RunError: there is no mpirun to use.
    """
    total = sum(slots.values())
    hosts = ",".join(f"{name}:{count}" for name, count in slots.items())
    for option in options:
        if option.split("=")[0] in _HOST_FLAGS:
            raise UsageError(f"{option}: the test bed names the hosts to mpirun; say which with --slots a:2,b:1")
    if ranks is not None and not 1 <= ranks <= total:
        raise UsageError(f"-n {ranks}: the hosts have {total} slots ({hosts}); give them others: --slots a:2,b:1")
    return [str(find_mpirun()), "--host", hosts, "-n", str(ranks or total), *options]


def environment(enter: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """The environment of a job. What the caller has set, stays; an option of mpirun outdoes both.

    Args:
        enter: the script that starts a command on a host. No blank in its path: Open MPI would split it.
        caller: the environment of this process.
    """
    assert " " not in str(enter)
    defaults = {
        # All hosts look the same to Open MPI, this machine's cores included: left alone, it would bind the first rank
        # of each to the same core.
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",  # only the first host starts the others
        "PRTE_MCA_prte_if_include": "eth0",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "tcp,sm,self",  # between hosts TCP; shared memory only serves ranks of one host
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "OMP_NUM_THREADS": "1",  # a host sees all cores of this machine, and may use its share of them
    }
    if os.geteuid() == 0:
        defaults |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**defaults, **caller, "PATH": job_path(), "PRTE_MCA_plm_ssh_agent": str(enter)}


def job_path() -> str:
    """The ``PATH`` of a job: the virtual environment of this Python, that of the checkout, and the caller's ``PATH``.

    So ``bpt``, ``python`` and ``mpirun`` belong together without an activated environment, under sudo, too.
    """
    own = [Path(sys.prefix, "bin")] if sys.prefix != sys.base_prefix else []
    folders = [str(folder) for folder in [*own, _CHECKOUT / ".venv" / "bin"] if folder.is_dir()]
    return os.pathsep.join([*dict.fromkeys(folders), search_path()])
