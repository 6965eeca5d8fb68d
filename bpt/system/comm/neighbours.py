"""Others on the same machine: threads that wait give way to them, and a run says so where they hinder each other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bpt.system.comm.cores import ROOT, allowed, cpu_time, physical

WAITING = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
"""How long OpenMP's threads ask again and again before they sleep: GNU's library in rounds, LLVM's in ms.

A thread whose partner waits for a core would ask for milliseconds by default, and so take the core's time from it and
from others. What lies between two layers is shorter than this, so that a run that is alone is as fast as before.
"""
SHORTEST = 0.3  # seconds over which others are watched, at least: shorter, the system's clock is too coarse
WORTH_A_WORD = 0.5  # cores


def set_omp_wait_policy(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let threads that wait sleep soon, unless the environment says how they wait. Before torch is loaded."""
    if "OMP_WAIT_POLICY" not in environment:
        for name, value in WAITING.items():
            environment.setdefault(name, value)


@dataclass(frozen=True)
class CpuTime:
    """Seconds of CPU up to a moment.

    Attributes:
        moment: by a clock that only counts.
        machine: of all processes of this machine, whatever their container.
        own: of this process.
    """

    moment: float
    machine: float
    own: float

    @classmethod
    def now(cls, root: Path = ROOT) -> CpuTime | None:
        """Return those up to now; ``None`` where the system does not tell."""
        try:
            # cpu  user nice system idle iowait irq softirq …
            user, nice, system, _, _, irq, softirq = map(int, (root / "proc/stat").read_text().split()[1:8])
        except (OSError, ValueError):
            return None
        own = os.times()
        machine = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), machine, own.user + own.system)


@dataclass(frozen=True)
class MachineLoad:
    """What a rank needs of its machine, and how busy that was.

    Attributes:
        host: its name.
        machine: what tells the machine from others; containers and test beds put several hosts on one.
        cpus: of the machine.
        cores: that the rank may use.
        threads: that the rank computes with.
        busy: of the machine's CPUs, in the mean.
        own: of these, by the rank.
    """

    host: str
    machine: str
    cpus: int
    cores: float
    threads: int
    busy: float
    own: float


def load_since(start: CpuTime | None, host: str, threads: int) -> MachineLoad:
    """Return the load of this process's host since ``start``.

    If that is too short ago, as if nobody had done anything.
    """
    now, busy, own = CpuTime.now(), 0.0, 0.0
    if start is not None and now is not None and (seconds := now.moment - start.moment) >= SHORTEST:
        busy, own = (now.machine - start.machine) / seconds, (now.own - start.own) / seconds
    cores = min(float(physical(allowed())), cpu_time())
    return MachineLoad(host, _machine(), os.cpu_count() or 1, cores, threads, busy, own)


def _machine(root: Path = ROOT) -> str:
    """Drawn by the system's kernel when it starts; "" where there is none."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class HostLoad:
    """What all ranks of a host need, and what others take of its machine.

    Attributes:
        threads: of the ranks on the whole machine.
        others: CPUs that programs which are no ranks have kept busy.
    """

    host: str
    cpus: int
    threads: int
    others: float

    @property
    def is_busy(self) -> bool:
        """Whether others take what the ranks need."""
        return self.others >= WORTH_A_WORD and self.others + self.threads > self.cpus + WORTH_A_WORD / 2

    @property
    def described(self) -> str:
        """It, in words."""
        return f"host {self.host} is busy: other programs keep {self.others:.2g} of its {self.cpus} CPUs at work"


def host_loads(loads: Sequence[MachineLoad]) -> list[HostLoad]:
    """Of each host, from those of all ranks."""
    found = []
    for host, load in {load.host: load for load in loads}.items():
        ranks = [one for one in loads if (one.machine or one.host) == (load.machine or host)]
        others = max(one.busy for one in ranks) - sum(one.own for one in ranks)
        found.append(HostLoad(host, load.cpus, sum(one.threads for one in ranks), max(0.0, others)))
    return found


def remarks(loads: Sequence[MachineLoad]) -> Iterator[str]:
    """Yield a line for each host whose ranks hinder each other, or are hindered."""
    for host in dict.fromkeys(load.host for load in loads):
        here = [load for load in loads if load.host == host]
        cores, threads = max(load.cores for load in here), sum(load.threads for load in here)
        if threads > max(1.0, cores):
            yield (
                f"host {host} has {cores:.3g} core{'s' * (cores != 1)} for {threads} threads, which hinder each other: "
                "OMP_NUM_THREADS, or fewer ranks, make them fewer"
            )
    for load in host_loads(loads):
        if load.is_busy:
            yield f"{load.described}: this run and they slow each other, and times that are measured will not hold"
