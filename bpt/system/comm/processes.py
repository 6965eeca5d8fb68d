"""ProcessWindow: a window whose ranks are processes of one host; and whether those still live.

Needs no MPI: what MPI has made comes as a ``Win``. Room for memory that processes share is asked for before it is
taken, and taken before it is used: such memory is a file in a file system that is kept in memory, which may be small,
64 MiB in a container. The library may make the file without having the memory; a store would then end the process by
SIGBUS, without a word.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from bpt.base.errors import LostRankError
from bpt.system.comm.window import Call, Memory, Window

_FOLDER = "OMPI_MCA_osc_sm_backing_directory"  # what mpirun --mca osc_sm_backing_directory sets
_USUAL = Path("/dev/shm")
_OWN = 2**20  # bytes that the library wants for itself


def folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where the files of windows are; None: that is not known."""
    named = environment.get(_FOLDER)
    return Path(named) if named else _USUAL if _USUAL.is_dir() else None


def shortage(nbytes: int, host: str, place: Path | None, free: int | None = None) -> str:
    """Return why there cannot be ``nbytes`` bytes of shared memory on ``host``, and what to do; "": as far as known
    there can.

    Args:
        place: see ``folder``.
        free: bytes that are left there; None: to be asked of the system.
    """
    if place is None:
        return ""
    if not place.is_dir():
        return f"{_cannot(nbytes, host)}: {place}, named by osc_sm_backing_directory, is no folder there"
    if free is None:
        free = shutil.disk_usage(place).free
    return refusal(nbytes, host, place, f"has {free} bytes left") if nbytes + _OWN > free else ""


def refusal(nbytes: int, host: str, place: Path | None, reason: str = "is full") -> str:
    """One line that says that memory cannot be had, and what to do."""
    if place is None:
        return f"{_cannot(nbytes, host)}: the system has no more; use fewer ranks on that host, or one with more memory"
    mount = next(part for part in (place, *place.parents, Path("/")) if part.is_mount())
    return (
        f"{_cannot(nbytes, host)}: {place} {reason}. Enlarge it (mount -o remount,size=… {mount}; docker run "
        "--shm-size=…), remove what runs that were killed have left there, or name another folder of the host: mpirun "
        "--mca osc_sm_backing_directory DIR"
    )


def _cannot(nbytes: int, host: str) -> str:
    return f"the ranks on host {host} cannot share {nbytes} bytes of memory"


def take(memory: Memory) -> bool:
    """Fill ``memory`` with zeros; False: not all of it is there.

    The system writes, as if it read from a file: where memory is missing it says so, and sends no SIGBUS.
    """
    with open("/dev/zero", "rb", buffering=0) as zeros:
        rest = memory.data
        while rest:
            try:
                rest = rest[zeros.readinto(rest) or 0 :]
            except OSError as error:
                if error.errno != errno.EFAULT:
                    raise
                return False
    return True


class Win(Protocol):
    """MPI's window, as far as it is needed; between Lock_all and Unlock_all."""

    def Sync(self) -> None:
        """MPI's memory barrier."""

    def Unlock_all(self) -> None:
        """End the epoch."""

    def Free(self) -> None:
        """Give the memory back."""


class ProcessWindow(Window):
    """Memory that processes share.

    A process that is killed leaves no trace in it, and MPI tells of it only those who call MPI. So a rank that waits
    asks the system whether the other processes are there.

    Args:
        peers: the other ranks' processes.
        explain: the error that says that those ranks are gone or, of none, why nobody need be waited for; ``None``:
            there is no such reason.
    """

    def __init__(
        self,
        parts: Sequence[Memory],
        call: Call,
        win: Win,
        peers: Peers,
        explain: Callable[[Sequence[int]], LostRankError | None],
    ) -> None:
        super().__init__(parts, call)
        self._win = win
        self._peers = peers
        self._explain = explain

    def Sync(self) -> None:
        self._win.Sync()

    def Free(self) -> None:
        self._parts = ()
        self._peers.close()
        self._win.Unlock_all()
        self._win.Free()

    def _lost(self) -> LostRankError | None:
        return self._explain(self._peers.gone())


def identity() -> tuple[int, int]:
    """Return this process: its id, and in which namespace that holds (0: the system has but one)."""
    try:
        return os.getpid(), os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return os.getpid(), 0


class Peers:
    """Processes of this host, to be asked whether they live.

    Args:
        identities: rank → ``identity()`` of its process, which lives. Those of another namespace cannot be asked, and
            count as alive.
    """

    def __init__(self, identities: Mapping[int, tuple[int, int]]) -> None:
        here = identity()[1]
        self._processes = {rank: process for rank, (process, space) in identities.items() if space == here}
        # They stand for the very process: also when it waits to be reaped, and when its id is another's by then.
        self._handles: dict[int, int] = {}
        if sys.platform == "linux":
            with suppress(OSError):  # an old kernel, or a container that forbids it
                for rank, process in self._processes.items():
                    self._handles[rank] = os.pidfd_open(process)

    def gone(self) -> list[int]:
        """Return the ranks whose processes have ended."""
        return [rank for rank in self._processes if self._has_ended(rank)]

    def close(self) -> None:
        """Ask no more: all count as alive."""
        self._processes = {}
        while self._handles:
            os.close(self._handles.popitem()[1])

    def _has_ended(self, rank: int) -> bool:
        if rank in self._handles:
            poll = select.poll()
            poll.register(self._handles[rank], select.POLLIN)
            return bool(poll.poll(0))
        try:
            os.kill(self._processes[rank], 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it is there, and another user's
            pass
        return False
