"""Check the resources that hosts give to their ranks: cores, threads, memory, devices."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch

from bpt.apps.doctor.findings import Attempt, Finding, Ranks, Section, grouped, note, ok, problem, spans, warning
from bpt.base.log import columns, plural
from bpt.system.comm.cores import allowed_cpus, cpu_time, physical_cores
from bpt.system.comm.launch import launched
from bpt.system.comm.neighbours import HostLoad, MachineLoad, host_loads
from bpt.system.device.memory_use import available_memory, installed_memory

_SIMILAR = 1.25  # ranks whose numbers of cores differ by a smaller factor count as equal
_DIVIDE_BATCHES = (
    "with equal shares of a batch the faster ranks wait: parallel_param { balance: DYNAMIC } divides it by measured "
    "speeds; or measure the ranks by mpirun … bpt time --solver S --profile speeds.json, and set "
    "parallel_param { balance: STATIC balance_param { profile: 'speeds.json' } }"
)
_DIVIDE_SAMPLES = (
    "parallel_param { exchange: AGWU balance: IDPA }: no rank waits for the slower ranks, and the faster ones get more "
    "samples"
)


@dataclass(frozen=True)
class RankPlace:
    """The resources of one rank.

    Attributes:
        cpus: the logical CPUs on which it may run.
        launcher_cpus: the logical CPUs of its launcher, which may have given the rank fewer.
        cpus_a_core: the number of logical CPUs per core.
        quota: the CPU time that its control groups grant, in CPUs; infinite without a limit.
        threads: its number of threads.
        memory: the bytes of main memory of the host.
        free: the bytes of main memory that are available.
        device: its device; empty: it has none, because of ``device_error``.
        device_error: why it has no device.
        gpus: the models of the CUDA devices that it sees.
        folder: its working directory.
        is_launched: whether a launcher such as mpirun or srun has started the rank.
    """

    cpus: frozenset[int]
    launcher_cpus: frozenset[int]
    cpus_a_core: float
    quota: float
    threads: int
    memory: int
    free: int
    device: str
    device_error: str
    gpus: tuple[str, ...]
    folder: str
    is_launched: bool = True

    @property
    def cores(self) -> int:
        """The number of cores on which the rank may run."""
        return max(1, round(len(self.cpus) / self.cpus_a_core))


def place_here(device: Attempt[torch.device]) -> RankPlace:
    """Return the resources of this rank."""
    cpus = allowed_cpus()
    launcher_cpus = _launcher_cpus() or cpus
    return RankPlace(
        cpus=cpus,
        launcher_cpus=launcher_cpus,
        cpus_a_core=len(launcher_cpus) / physical_cores(launcher_cpus),
        quota=cpu_time(),
        threads=torch.get_num_threads(),
        memory=installed_memory(),
        free=available_memory(),
        device=str(device.value) if device.value is not None else "",
        device_error=device.message,
        gpus=tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())),
        folder=os.getcwd(),
        is_launched=launched(),
    )


def check_hosts(
    ranks: Ranks, device: Attempt[torch.device], outer: bool = False, loads: Sequence[MachineLoad] = ()
) -> Section:
    """Return the findings about all hosts; a collective call.

    Args:
        ranks: all ranks.
        device: the device of this rank, or the error.
        outer: whether the run uses the outer layer; the same on all ranks.
        loads: the loads of the hosts, by rank; empty: they are not checked.
    """
    places = ranks.world.allgather(place_here(device))
    busy = [load for load in host_loads(loads) if load.is_busy]
    found = (*findings(ranks, places, outer, {load.host for load in busy}), *map(_warning_of_load, busy))
    return Section("Hosts", found, tuple(columns(list(_rows(ranks, places)), left=2)))


def _warning_of_load(load: HostLoad) -> Finding:
    fewer = ", or with fewer threads" if load.threads > 1 else ""
    return warning(load.described, f"top shows these programs; start when they have ended{fewer}")


def usable(places: Sequence[RankPlace]) -> float:
    """Return the number of cores that these ranks of one host can use together, limited by CPU time."""
    cpus = frozenset[int]().union(*(place.cpus | place.launcher_cpus for place in places))
    return min(len(cpus) / places[0].cpus_a_core, *(place.quota for place in places))


def findings(
    ranks: Ranks, places: Sequence[RankPlace], outer: bool = False, busy: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield the findings about the resources of all ranks.

    Args:
        ranks: all ranks.
        places: the resources of each rank.
        outer: whether the run uses the outer layer.
        busy: the hosts whose cores other programs use; these hosts are not reported as idle.
    """
    for host, members in ranks.by_host.items():
        here = [places[rank] for rank in members]
        yield from _cores_of(ranks, host, members, here, host in busy)
        yield from _devices_of(ranks, host, members, here)
    yield from _unlike(ranks, places, _DIVIDE_SAMPLES if outer else _DIVIDE_BATCHES)
    for error, members in grouped([place.device_error for place in places]).items():
        if error:
            yield problem(f"{ranks.named(members)}: {error}")
    folders = grouped([place.folder for place in places])
    if len(folders) > 1:
        where = "; ".join(f"{ranks.named(members)}: {folder}" for folder, members in folders.items())
        yield warning(
            f"the ranks are in different folders, so the same path is another file: {where}",
            "make the folder on all hosts, or start with mpirun --wdir FOLDER …",
        )


def _cores_of(ranks: Ranks, host: str, members: list[int], here: list[RankPlace], is_busy: bool) -> Iterator[Finding]:
    cores, wanted = usable(here), sum(place.threads for place in here)
    fair = max(1, math.floor(cores / len(here)))
    narrow = [rank for rank, place in zip(members, here, strict=True) if place.cores < fair]
    crowded = [rank for rank, place in zip(members, here, strict=True) if place.threads > place.cores]
    if narrow:
        fewest = min(place.cores for place in here)
        yield warning(
            f"{ranks.named(narrow)}: bound to {plural(fewest, 'core')} by the launcher, although {fair} are available",
            "mpirun --bind-to none …, or --map-by slot:PE=N for N cores a rank (srun: --cpu-bind=none)",
        )
    elif crowded:
        yield warning(
            f"{ranks.named(crowded)}: more threads than cores for the rank",
            "mpirun --bind-to none …, or set OMP_NUM_THREADS to the cores of a rank"
            if here[0].is_launched
            else f"set OMP_NUM_THREADS to the cores: OMP_NUM_THREADS={fair} bpt …",
        )
    if wanted > max(1, math.ceil(cores)):
        if max(place.threads for place in here) > 1:
            remedy = f"give each rank fewer threads: {_with_threads(here, fair)}"
        else:
            remedy = f"start at most {plural(max(1, int(cores)), 'rank')} on this host"
        yield warning(f"host {host}: {_busy(here)} for {_cores_text(cores)}: they will hinder each other", remedy)
    elif not narrow and not crowded:
        yield ok(f"host {host}: {_busy(here)} for {_cores_text(cores)}")
    if not is_busy and wanted <= cores / 2 and all(place.device in ("", "cpu") for place in here):
        yield note(
            f"host {host}: idle: {_cores_text(cores - wanted)}",
            f"more threads a rank ({_with_threads(here, fair)}) or more ranks would use more",
        )


def _with_threads(here: list[RankPlace], threads: int) -> str:
    """Return the command that gives each of the ranks this number of threads."""
    if here[0].is_launched:
        return f"mpirun -x OMP_NUM_THREADS={threads} …"
    return f"OMP_NUM_THREADS={threads} bpt …"


def _unlike(ranks: Ranks, places: Sequence[RankPlace], remedy: str) -> Iterator[Finding]:
    """Yield a note if some hosts give their ranks more resources than others."""
    models = {_model(place) for place in places if place.device}
    if len(models) > 1:
        yield note(f"the ranks compute on different devices: {', '.join(sorted(models))}", remedy)
    elif models == {"cpu"}:
        cores = []
        for members in ranks.by_host.values():
            here = [places[rank] for rank in members]
            cores += [min(place.threads, usable(here) / len(here)) for place in here]
        if max(cores) > _SIMILAR * min(cores):
            yield note(f"the ranks have from {min(cores):.3g} to {max(cores):.3g} cores each", remedy)


def _model(place: RankPlace) -> str:
    name, _, number = place.device.partition(":")
    return place.gpus[int(number)] if name == "cuda" else name


def _devices_of(ranks: Ranks, host: str, members: list[int], here: list[RankPlace]) -> Iterator[Finding]:
    for device, at in grouped([place.device for place in here]).items():
        if device.startswith("cuda") and len(at) > 1:
            yield warning(
                f"{ranks.named([members[index] for index in at])} share the one device {device}",
                f"start as many ranks on a host as it has devices: {plural(len(here[0].gpus), 'rank')} on {host}",
            )
    if here[0].gpus and all(place.device == "cpu" for place in here):
        yield note(
            f"host {host} has {plural(len(here[0].gpus), 'CUDA device')}, but its ranks compute on the CPU",
            "--gpu all or solver_mode: GPU, with as many ranks on a host as it has devices",
        )


def _rows(ranks: Ranks, places: Sequence[RankPlace]) -> Iterator[tuple[str, ...]]:
    yield "host", "ranks", "cores", "threads a rank", "memory", "free", "computes on"
    for host, members in ranks.by_host.items():
        here = [places[rank] for rank in members]
        devices = dict.fromkeys(_device_text(place) for place in here)
        threads = sorted({place.threads for place in here})
        yield (
            host,
            spans(members),
            f"{usable(here):.3g}",
            f"{threads[0]}-{threads[-1]}" if len(threads) > 1 else f"{threads[0]}",
            _gib(here[0].memory),
            _gib(here[0].free),
            ", ".join(devices),
        )


def _device_text(place: RankPlace) -> str:
    return f"{place.device} ({_model(place)})" if place.device.startswith("cuda") else place.device or "nothing"


def _busy(here: list[RankPlace]) -> str:
    threads = sum(place.threads for place in here)
    return f"{plural(len(here), 'rank')} with {plural(threads, 'thread')}" + (" in all" if len(here) > 1 else "")


def _launcher_cpus() -> frozenset[int]:
    """Return the logical CPUs of the launcher; none if there is no launcher, or they cannot be read."""
    try:
        return frozenset(os.sched_getaffinity(os.getppid())) if launched() else frozenset()
    except (AttributeError, OSError):  # the system is not Linux, or the launcher belongs to another user
        return frozenset()


def _cores_text(cores: float) -> str:
    return f"{cores:.3g} core{'s' * (cores != 1)}"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
