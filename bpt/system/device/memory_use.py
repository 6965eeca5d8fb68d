"""The peak memory of a process, and the memory that it can still get."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from bpt.system.device import memory_of

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 2**60  # without a limit, version 1 shows about 2^63


class Memory:
    """The memory of a process on its device.

    Args:
        device: the device on which it computes.
        processes: the number of processes that share that memory; free memory is divided among them.
    """

    def __init__(self, device: torch.device, processes: int = 1) -> None:
        self._device = device
        self._processes = processes

    def reset(self) -> None:
        """Forget the peak so far."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        with contextlib.suppress(OSError):  # without this the peak is that since the start of the process
            (_PROC / "self/clear_refs").write_text("5")

    @property
    def peak(self) -> int:
        """Return the largest number of bytes in use since ``reset``."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return _field(_PROC / "self/status", "VmHWM") or 0

    @property
    def room(self) -> int:
        """Return the bytes that this process can take besides its peak."""
        if self._device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self._device)
            idle = torch.cuda.memory_reserved(self._device) - self.peak
            return free // self._processes + idle
        given_back = self.peak - (_field(_PROC / "self/status", "VmRSS") or 0)
        return max(0, available_memory() // self._processes - max(0, given_back))


def available_memory() -> int:
    """Return the bytes of main memory that processes here can still get, from the machine and from their cgroups."""
    machine = _field(_PROC / "meminfo", "MemAvailable")
    if machine is None:
        machine = memory_of(torch.device("cpu")) // 2  # an old or another system does not report it
    return min([machine, *_cgroup_rooms()])


def obtainable_memory(device: torch.device) -> int:
    """Return the bytes of the device's memory that this process can have, including what it already has."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    return available_memory() + (_field(_PROC / "self/status", "VmRSS") or 0)


def installed_memory() -> int:
    """Return the bytes of main memory for processes here, used or not: the machine's, or the limit of a cgroup."""
    return min([memory_of(torch.device("cpu")), *(limit for _, _, limit in _cgroup_limits())])


def _field(path: Path, name: str) -> int | None:
    """Return the bytes in the line ``name:  123 kB`` of a file; ``None`` if there is none."""
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _cgroup_rooms() -> Iterator[int]:
    """Yield the remainder of each memory limit that applies to this process."""
    for folder, usage, limit in _cgroup_limits():
        with contextlib.suppress(OSError, ValueError):
            yield max(0, limit - int((folder / usage).read_text()) + _reclaimable(folder))


def _cgroup_limits() -> Iterator[tuple[Path, str, int]]:
    """Yield the folder of each cgroup of this process that has a limit, its file of the usage, and the limit."""
    for folder, limit, usage in _cgroup_files():
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            size = int((folder / limit).read_text())
            if size < _UNLIMITED:
                yield folder, usage, size


def _cgroup_files() -> Iterator[tuple[Path, str, str]]:
    """Yield the folder of each cgroup of this process up to the root, and its files of the limit and the usage."""
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, names = _CGROUP, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = _CGROUP / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        here = root / path.lstrip("/")
        for folder in (here, *here.parents):
            if folder.is_relative_to(root):
                yield folder, *names


def _reclaimable(folder: Path) -> int:
    """Return the bytes of cached files, which count as used but are released on demand."""
    sizes = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return int(sizes.get("total_inactive_file", sizes.get("inactive_file", 0)))
