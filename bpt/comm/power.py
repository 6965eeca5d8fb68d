"""Power: how much a rank can compute, before anything is measured.

It is the frequency μ by which BPT-CNN divides the first batch of samples (Alg. 3.1), times the cores that a rank has:
the paper's nodes are alike but for their frequency, while ours may have any number of cores, or a part of one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Set
from pathlib import Path

from bpt.comm.base import Communicator
from bpt.comm.cores import ROOT, allowed, cpu_time, physical, wanted_threads

# In kHz. The greatest comes first: all drivers tell it, so that nodes of several makes are measured alike.
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
    """This rank's power: MHz of its cores × the number of cores that it may use, which may be a fraction.

    A rank has the physical cores that it may run on, divided by the ranks that may run there too, and no more than its
    part of the CPU time that the control groups of its node grant, and than OMP_NUM_THREADS.

    Args:
        ranks: on this node, this one included.
        sharing: those of them that may run on this one's cores.
        device: MHz × units of what computes in place of the cores, such as a GPU; counts as it is.

    Returns:
        ``None``: the frequency cannot be read.

    Raises:
        UserError: OMP_NUM_THREADS is no number.
    """
    if device is not None:
        return device or None
    cpus = allowed()
    mhz = frequency(cpus, root)
    if mhz is None:
        return None
    threads = wanted_threads(environment) or math.inf
    return mhz * min(physical(cpus, root) / sharing, cpu_time(root) / ranks, threads)


def powers(
    comm: Communicator, device: float | None = None, environment: Mapping[str, str] = os.environ, root: Path = ROOT
) -> list[float | None]:
    """The power of every rank, in order of rank; a collective call. Arguments and errors as of ``power``."""
    mine = allowed()
    here = [cpus for host, cpus in comm.allgather((comm.host, mine)) if host == comm.host]
    sharing = sum(1 for cpus in here if cpus & mine)
    return comm.allgather(power(len(here), sharing, device, environment, root))


def frequency(cpus: Set[int], root: Path = ROOT) -> float | None:
    """The mean frequency of ``cpus`` in MHz; ``None``: that of one cannot be read, or is told as 0."""
    told = _told(root)
    found = [_of_driver(cpu, root) or told.get(cpu, 0.0) for cpu in sorted(cpus)]
    return sum(found) / len(found) if found and all(found) else None


def _of_driver(cpu: int, root: Path) -> float:
    """MHz, as the driver of the CPU's clock says; 0: there is none."""
    for name in _FREQUENCIES:
        try:
            return int((root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}").read_text()) / 1000
        except (OSError, ValueError):
            continue
    return 0.0


def _told(root: Path) -> dict[int, float]:
    """CPU → its MHz of this moment, which is all that a virtual machine knows. Not every processor tells it."""
    try:
        entries = (root / "proc/cpuinfo").read_text().split("\n\n")
    except OSError:
        return {}
    found = ((_CPU.search(entry), _MHZ.search(entry)) for entry in entries)
    return {int(cpu[1]): float(mhz[1]) for cpu, mhz in found if cpu and mhz}
