"""Other processes on the same machine: a run reports when they slow each other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bpt.system.comm.cores import ROOT, allowed_cpus, cpu_time, physical_cores

SHORTEST = 0.3  # the least seconds of a measurement; the system's clock is too coarse for less
WORTH_A_WORD = 0.5  # cores


@dataclass(frozen=True)
class CpuTime:
    """Seconds of CPU time up to a moment.

    Attributes:
        moment: the time, by a monotonic clock.
        machine: of all processes of this machine, in any container.
        own: of this process.
    """

    moment: float
    machine: float
    own: float

    @classmethod
    def now(cls, root: Path = ROOT) -> CpuTime | None:
        """Return the CPU time up to now; ``None`` where the system does not report it."""
        try:
            # cpu  user nice system idle iowait irq softirq …
            user, nice, system, _, _, irq, softirq = map(int, (root / "proc/stat").read_text().split()[1:8])
        except (OSError, ValueError):
            return None
        own = os.times()
        machine = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), machine, own.user + own.system)

    def others_since(self, start: CpuTime) -> float:
        """Return the mean number of CPUs that other processes have kept busy; 0 if too little time has passed."""
        seconds = self.moment - start.moment
        if seconds < SHORTEST:
            return 0.0
        return max(0.0, (self.machine - start.machine - self.own + start.own) / seconds)


@dataclass(frozen=True)
class MachineLoad:
    """The needs of a rank and the load of its machine.

    Attributes:
        host: the host's name.
        machine: the identity of the machine; containers and test beds put several hosts on one.
        cpus: the number of the machine's CPUs.
        cores: the number of cores that the rank may use.
        threads: the number of threads with which the rank computes.
        busy: the mean number of busy CPUs of the machine.
        own: the mean number of CPUs that this rank keeps busy.
    """

    host: str
    machine: str
    cpus: int
    cores: float
    threads: int
    busy: float
    own: float


def load_since(start: CpuTime | None, host: str, threads: int) -> MachineLoad:
    """Return the load of this process's host since ``start``; an idle one if too little time has passed."""
    now, busy, own = CpuTime.now(), 0.0, 0.0
    if start is not None and now is not None and (seconds := now.moment - start.moment) >= SHORTEST:
        busy, own = (now.machine - start.machine) / seconds, (now.own - start.own) / seconds
    cores = min(float(physical_cores(allowed_cpus())), cpu_time())
    return MachineLoad(host, _machine(), os.cpu_count() or 1, cores, threads, busy, own)


def _machine(root: Path = ROOT) -> str:
    """Return the identity of the machine, which the system's kernel draws at its start; "" where there is none."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class HostLoad:
    """The needs of all ranks of a host, and the use of its machine by others.

    Attributes:
        threads: the threads of the ranks on the whole machine.
        others: the number of CPUs that other programs have kept busy.
    """

    host: str
    cpus: int
    threads: int
    others: float

    @property
    def is_busy(self) -> bool:
        """Whether others use CPUs that the ranks need."""
        return self.others >= WORTH_A_WORD and self.others + self.threads > self.cpus + WORTH_A_WORD / 2

    @property
    def described(self) -> str:
        """The load in words."""
        return f"host {self.host} is busy: other programs keep {self.others:.2g} of its {self.cpus} CPUs at work"


def host_loads(loads: Sequence[MachineLoad]) -> list[HostLoad]:
    """Return the load of each host, from the loads of all ranks."""
    found = []
    for host, load in {load.host: load for load in loads}.items():
        ranks = [one for one in loads if (one.machine or one.host) == (load.machine or host)]
        others = max(one.busy for one in ranks) - sum(one.own for one in ranks)
        found.append(HostLoad(host, load.cpus, sum(one.threads for one in ranks), max(0.0, others)))
    return found


def remarks(loads: Sequence[MachineLoad]) -> Iterator[str]:
    """Yield a line for each host whose ranks slow each other, or are slowed by others."""
    for host in dict.fromkeys(load.host for load in loads):
        here = [load for load in loads if load.host == host]
        cores, threads = max(load.cores for load in here), sum(load.threads for load in here)
        if threads > max(1.0, cores):
            yield (
                f"host {host} has {cores:.3g} core{'s' * (cores != 1)} for {threads} threads, which slow each other: "
                "reduce them by OMP_NUM_THREADS or fewer ranks"
            )
    for load in host_loads(loads):
        if load.is_busy:
            yield f"{load.described}: they and this run slow each other, and measured times are unreliable"
