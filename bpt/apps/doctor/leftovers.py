"""Leftovers of killed jobs on this host: shared memory, folders of the launcher, files of bpt.

A leftover belongs to this user, has a name of Open MPI or bpt, is at least a minute old, and is used by no process:
it is neither mapped nor open, and the process whose id is in its name has ended. If not all processes are visible (in
a container with the host's shared memory, or without /proc), there are no leftovers.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bpt.apps.doctor.findings import Finding, Ranks, Section, attempt, note, ok, problem
from bpt.base.atomic import leftovers
from bpt.system.comm.processes import shared_folder as folder_of_windows
from bpt.train.state.in_memory import OF_SNAPSHOTS
from bpt.train.state.prefix_lock import PrefixLock

_PROC = Path("/proc")
_INITIAL = {"pid": 0xEFFFFFFC, "ipc": 0xEFFFFFFF}  # namespaces of the system itself (Linux: PROC_PID_INIT_INO …)
_SEGMENT = re.compile(r"(?:sm_segment|vader_segment|osc_sm|osc_rdma)\.(?P<host>.+?)\.(?:\d+\.)?[0-9a-f]+\.\d+(?:\..*)?")
_SESSION = re.compile(r"(?:ompi|prte)\.(?P<process>\d+)")
_MEAN = re.compile(r"bpt_mean_\w+")
YOUNG = 60.0  # seconds during which a new file may not be mapped yet
DAY = 86400.0  # seconds during which a run may still resume from a snapshot in memory
MEMORY = Path("/dev/shm")
_SHOWN = 5  # largest number of leftovers that a finding names

Place = tuple[int, int]  # device and number of a file


@dataclass(frozen=True)
class Leftover:
    """A file or folder that a dead job left."""

    path: Path
    nbytes: int

    def remove(self) -> None:
        """Remove the file or folder, or raise an OSError."""
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink()


def find() -> list[Leftover]:
    """Return the leftovers of this user's dead jobs on this host."""
    used = _used_files()
    if used is None:
        return []
    temporary = Path(tempfile.gettempdir())
    memory = {place for place in (folder_of_windows(), MEMORY) if place is not None}
    here = socket.gethostname().split(".")[0]
    found = []
    for place in sorted({*memory, temporary}):
        for entry in _own_entries(place):
            files = _files(entry)
            old = all(time.time() - max(about.st_mtime, about.st_ctime) > YOUNG for about in files.values())
            idle = not any((about.st_dev, about.st_ino) in used for about in files.values())
            if old and idle and _is_dead(entry, place in memory, here):
                found.append(Leftover(entry, sum(about.st_blocks * 512 for about in files.values())))
    return found


def _is_dead(entry: Path, in_memory: bool, here: str) -> bool:
    """Return whether an unused file or folder belongs to a dead job, by its name."""
    if segment := _SEGMENT.fullmatch(entry.name):
        return in_memory and segment["host"].split(".")[0] == here
    if session := _SESSION.fullmatch(entry.name):
        return entry.is_dir() and not (_PROC / session["process"]).exists()
    if entry.name.startswith(OF_SNAPSHOTS):  # the run may start again soon
        return in_memory and time.time() - entry.lstat().st_mtime > DAY
    return _MEAN.fullmatch(entry.name) is not None


def _own_entries(place: Path) -> Iterator[Path]:
    """Yield this user's files and folders in a folder, without links."""
    with suppress(OSError):
        for entry in sorted(place.iterdir()):
            with suppress(OSError):
                about = entry.lstat()
                if about.st_uid == os.geteuid() and (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
                    yield entry


def _files(entry: Path) -> dict[Path, os.stat_result]:
    """Return the file, or the folder and all its content."""
    found = {}
    for path in (entry, *(entry.rglob("*") if entry.is_dir() else ())):
        with suppress(OSError):
            found[path] = path.lstat()
    return found


def _used_files() -> set[Place] | None:
    """Return all files that processes have mapped or open.

    ``None``: not all of this user's processes are visible.
    """
    try:
        space = {kind: (_PROC / "self/ns" / kind).stat().st_ino for kind in _INITIAL}
    except OSError:
        return None
    if space["ipc"] == _INITIAL["ipc"] and space["pid"] != _INITIAL["pid"]:
        return None
    used: set[Place] = set()
    for process in _PROC.iterdir():
        if not process.name.isdecimal() or process.name == "1":  # init, which even root may not always read
            continue
        try:
            if process.stat().st_uid != os.geteuid() and os.geteuid():
                continue  # another user's process cannot use this user's files
            for line in (process / "maps").read_text(errors="replace").splitlines():
                _, _, _, device, number, *_ = line.split(maxsplit=5)
                major, minor = device.split(":")
                used.add((os.makedev(int(major, 16), int(minor, 16)), int(number)))
            for descriptor in (process / "fd").iterdir():
                with suppress(FileNotFoundError):
                    about = descriptor.stat()
                    used.add((about.st_dev, about.st_ino))
        except (FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            continue
        except OSError:
            return None
    return used


def check_leftovers(ranks: Ranks, prefix: str, clean: bool) -> Section | None:
    """Find, and with ``clean`` remove, the leftovers of dead jobs, once on each host; a collective call.

    Args:
        ranks: all ranks.
        prefix: the ``snapshot_prefix`` whose lock and half-written snapshots count, too; "": none.
        clean: whether to remove leftovers.

    Returns:
        The findings; ``None``: there are no leftovers, and ``clean`` is not set.
    """
    world = ranks.world
    mine: list[Finding] = []
    if ranks.hosts.index(world.host) == world.rank:
        mine += _leftover_findings(ranks, find(), clean)
    if prefix and world.rank == 0:
        mine += _of_prefix(prefix, clean)
    findings = [finding for theirs in world.allgather(mine) for finding in theirs]
    if not findings and not clean:
        return None
    return Section("Left by dead jobs", tuple(findings or [ok("nothing")]))


def _leftover_findings(ranks: Ranks, left: list[Leftover], clean: bool) -> Iterator[Finding]:
    if not left:
        return
    host = f"host {ranks.world.host}: "
    size = f"{sum(each.nbytes for each in left) / 2**20:.1f} MiB"
    names = ", ".join(str(each.path) for each in left[:_SHOWN])
    names += f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    if not clean:
        yield note(f"{host}dead jobs have left {size}: {names}", "bpt doctor --clean removes them")
        return
    tried = [(each, _try(each.remove)) for each in left]
    gone = sum(not reason for _, reason in tried)
    if gone:
        yield ok(f"{host}removed what dead jobs had left, {size}: {names}")
    for each, reason in tried:
        if reason:
            yield problem(f"{host}{each.path} cannot be removed: {reason}")


def _try(do: Callable[[], None]) -> str:
    """Call ``do`` and return the reason of its failure; "": it succeeded."""
    try:
        do()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _of_prefix(prefix: str, clean: bool) -> Iterator[Finding]:
    """Yield the lock and the half-written files of a dead run. The lock can be taken only if the run is dead."""
    lock = Path(f"{prefix}.lock")
    there = [*([str(lock)] if lock.exists() else []), *map(str, leftovers(f"{prefix}_iter_"))]
    if not there:
        return
    names = ", ".join(there)
    if not clean:
        yield note(
            f"{names}: files of a running job, or leftovers of a dead one", "bpt doctor --clean removes the latter"
        )
        return

    def take_lock() -> None:
        with PrefixLock(prefix):
            pass

    locked = attempt(take_lock)
    yield problem(locked.message) if locked.error else ok(f"removed what a dead run had left: {names}")
