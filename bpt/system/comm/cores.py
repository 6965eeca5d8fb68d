"""The cores of its node on which a rank computes, so the number of its threads; and its power before measurement.

Power is the frequency μ by which BPT-CNN divides the first batch of samples (Alg. 3.1), times the number of a rank's
cores. The paper's nodes differ in frequency only; ours may have any number of cores, or a part of one.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Mapping, Set
from pathlib import Path

from bpt.base.errors import UserError
from bpt.system.comm.base import Communicator
from bpt.system.comm.pmix import loaded_pmix
from bpt.system.comm.proxy import launcher

ROOT = Path("/")
_PMIX_RANK_WILDCARD = 2**32 - 2
_PMIX_STRING = 3
LONGEST_SLEEP = 5e-4  # seconds between two looks at a message that a rank waits for
SLEEP_OF_A_RANK = 2.5e-4  # the same, for each rank of a core


def share_cores(comm: Communicator, environment: Mapping[str, str] = os.environ) -> int:
    """Bind this rank to its share of its node's cores and return its number of threads; a collective call.

    The number is that of the cores that the process may use, divided by the ranks that may use them too, at least 1.
    OMP_NUM_THREADS overrides it. Cores are physical ones, and no more than the CPU time limit of a container.

    Raises:
        UserError: OMP_NUM_THREADS is not a number.
    """
    mine = allowed_cpus()
    theirs = comm.allgather((comm.host, mine))
    here = [cpus for host, cpus in theirs if host == comm.host]
    threads = math.ceil(cpu_time()) // len(here) if cpu_time() < math.inf else physical_cores(mine)
    threads = min(threads, physical_cores(mine) // sum(1 for cpus in here if cpus & mine))
    return wanted_threads(environment) or max(1, threads)


def longest_sleep(ranks: int) -> float:
    """Return the seconds that a waiting rank sleeps at most, if ``ranks`` are on this node.

    It is 0.0 where waits may spin, because there is a core for each rank. Otherwise it grows with the ranks of a core:
    all waiting ranks together take the same small part of it, whatever their number.
    """
    cpus = min(cpu_time(), len(allowed_cpus()))
    is_scarce = cpus < len(allowed_cpus()) or ranks > cpus
    return max(LONGEST_SLEEP, SLEEP_OF_A_RANK * ranks / cpus) if is_scarce else 0.0


def allowed_cpus() -> frozenset[int]:
    """Return the logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def physical_cores(cpus: Set[int], root: Path = ROOT) -> int:
    """Return the number of cores of ``cpus``: two hardware threads of one core compute no faster than one."""
    return len({_siblings(cpu, root) for cpu in cpus})


def _siblings(cpu: int, root: Path) -> str:
    try:
        return (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def cpu_time(root: Path = ROOT) -> float:
    """Return the number of CPUs whose time the control groups grant to this process and its neighbours there.

    The result is infinite without a limit.
    """
    try:
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return math.inf
    # hierarchy:controllers:path; version 2 has no controllers
    paths = {name: path for _, names, path in (line.split(":", 2) for line in groups) for name in names.split(",")}
    limits = [math.inf]
    for line in mounts:
        # id parent device root mount-point options [tags] - type source options
        place, _, kind = line.partition(" - ")
        at, on = place.split()[3:5]
        system, _, options = kind.split()[:3]
        if system == "cgroup" and "cpu" in options.split(",") and "cpu" in paths:
            limits += [_version_1(folder) for folder in _groups(root, at, on, paths["cpu"])]
        elif system == "cgroup2" and "" in paths:
            limits += [_version_2(folder) for folder in _groups(root, at, on, paths[""])]
    return min(limits)


def _groups(root: Path, at: str, on: str, path: str) -> list[Path]:
    """Return the folders of a group and of its parents, as far as this mount shows them."""
    mount = root / on.lstrip("/")
    inner = Path(path).relative_to(at) if Path(path).is_relative_to(at) else Path()
    return [mount / inner, *(mount / parent for parent in inner.parents)]


def _version_1(folder: Path) -> float:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return quota / int((folder / "cpu.cfs_period_us").read_text()) if quota > 0 else math.inf
    except (OSError, ValueError):
        return math.inf


def _version_2(folder: Path) -> float:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return math.inf


def wanted_threads(environment: Mapping[str, str]) -> int:
    """Return the number of threads that the user requests by OMP_NUM_THREADS; 0 without a request.

    Raises:
        UserError: it is not a number.
    """
    text = environment.get("OMP_NUM_THREADS", "").strip()
    if not text:
        return 0
    first = text.split(",")[0].strip()  # "4,2": the second number is for parallel regions inside of others
    if not first.isdecimal() or int(first) < 1:
        raise UserError(f'OMP_NUM_THREADS is "{text}": it must be a number of threads, at least 1')
    return int(first)


def unbind_affinity() -> None:
    """Let this process run on all cores of its launcher, if it was bound to one core without a request.

    Open MPI's mpirun does that when there are at most two ranks. Call it when MPI has started.
    """
    if not hasattr(os, "sched_getaffinity") or physical_cores(allowed_cpus()) > 1 or not _bound_by_default():
        return
    try:
        cores = os.sched_getaffinity(launcher())  # the launcher is not bound
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)
    except OSError:  # the launcher belongs to another user, or a thread has just ended: the binding stays
        return


def _bound_by_default() -> bool:
    """Return whether Open MPI bound this process to a core only because it had no other order.

    The environment does not show it, but PMIx, the launcher's interface, does.
    """
    namespace = os.environ.get("PMIX_NAMESPACE")
    library = loaded_pmix()
    if namespace is None or library is None:
        return False
    process = _Process(namespace.encode(), _PMIX_RANK_WILDCARD)
    value = ctypes.POINTER(_Value)()
    status = library.PMIx_Get(ctypes.byref(process), b"pmix.bindto", None, 0, ctypes.byref(value))
    if status or not value or value.contents.type != _PMIX_STRING:
        return False
    return bool(value.contents.string.endswith(b":IF-SUPPORTED"))


class _Process(ctypes.Structure):
    """The structure pmix_proc_t."""

    _fields_ = (("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Value(ctypes.Structure):
    """The structure pmix_value_t, as far as it is needed."""

    _fields_ = (("type", ctypes.c_uint16), ("string", ctypes.c_char_p))


# In kHz. The greatest comes first: all drivers report it, so nodes of different makes are comparable.
_FREQUENCIES = ("cpuinfo_max_freq", "base_frequency")
_CPU = re.compile(r"^processor\s*:\s*(\d+)$", re.MULTILINE)
_MHZ = re.compile(r"^cpu MHz\s*:\s*(\d+\.?\d*)$", re.MULTILINE)


def power(
    ranks: int = 1,
    sharing: int = 1,
    device: float | None = None,
    environment: Mapping[str, str] = os.environ,
    root: Path = ROOT,
) -> float | None:
    """Return this rank's power: MHz of its cores × the number of cores that it may use, which may be a fraction.

    A rank has the physical cores on which it may run, divided by the ranks that may run there too. The CPU time that
    the control groups of its node grant is an upper limit, and so is OMP_NUM_THREADS.

    Args:
        ranks: the number of ranks on this node, this one included.
        sharing: the number of those that may run on this one's cores.
        device: MHz × units of a device that computes instead of the cores, such as a GPU; it is the result.

    Returns:
        The power; ``None`` if the frequency cannot be read.

    Raises:
        UserError: OMP_NUM_THREADS is not a number.
    """
    if device is not None:
        return device or None
    cpus = allowed_cpus()
    mhz = frequency(cpus, root)
    if mhz is None:
        return None
    threads = wanted_threads(environment) or math.inf
    return mhz * min(physical_cores(cpus, root) / sharing, cpu_time(root) / ranks, threads)


def powers(
    comm: Communicator, device: float | None = None, environment: Mapping[str, str] = os.environ, root: Path = ROOT
) -> list[float | None]:
    """Return the power of every rank, in order of rank; a collective call.

    Arguments and errors are those of ``power``.
    """
    mine = allowed_cpus()
    here = [cpus for host, cpus in comm.allgather((comm.host, mine)) if host == comm.host]
    sharing = sum(1 for cpus in here if cpus & mine)
    return comm.allgather(power(len(here), sharing, device, environment, root))


def frequency(cpus: Set[int], root: Path = ROOT) -> float | None:
    """Return the mean frequency of ``cpus`` in MHz; ``None`` if one cannot be read, or is reported as 0."""
    rates = _clock_rates(root)
    found = [_of_driver(cpu, root) or rates.get(cpu, 0.0) for cpu in sorted(cpus)]
    return sum(found) / len(found) if found and all(found) else None


def _of_driver(cpu: int, root: Path) -> float:
    """Return the MHz that the driver of the CPU's clock reports; 0 without a driver."""
    for name in _FREQUENCIES:
        try:
            return int((root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}").read_text()) / 1000
        except (OSError, ValueError):
            continue
    return 0.0


def _clock_rates(root: Path) -> dict[int, float]:
    """Return the current MHz of each CPU. A virtual machine knows no others. Some processors do not report them."""
    try:
        entries = (root / "proc/cpuinfo").read_text().split("\n\n")
    except OSError:
        return {}
    found = ((_CPU.search(entry), _MHZ.search(entry)) for entry in entries)
    return {int(cpu[1]): float(mhz[1]) for cpu, mhz in found if cpu and mhz}
