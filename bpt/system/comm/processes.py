"""ProcessWindow: a window whose ranks are processes of one host, and the test whether those still live.

It needs no MPI: MPI's window arrives as a ``Win``. Room for shared memory is checked before it is reserved, and
reserved before it is used. Such memory is a file in a file system in memory, which may be small, 64 MiB in a container.
The library may make the file without having the memory. A store would then end the process by SIGBUS, without a
message.
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
_OWN = 2**20  # bytes that the library needs itself


def shared_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of the files of windows; None if it is unknown."""
    named = environment.get(_FOLDER)
    return Path(named) if named else _USUAL if _USUAL.is_dir() else None


def shortage(nbytes: int, host: str, place: Path | None, free: int | None = None) -> str:
    """Return why there cannot be ``nbytes`` bytes of shared memory on ``host``, with a remedy; "" if none is known.

    Args:
        place: the result of ``shared_folder``.
        free: the free bytes there; None asks the system.
    """
    if place is None:
        return ""
    if not place.is_dir():
        return f"{_cannot(nbytes, host)}: {place}, named by osc_sm_backing_directory, is not a folder there"
    if free is None:
        free = shutil.disk_usage(place).free
    return refusal(nbytes, host, place, f"has {free} bytes left") if nbytes + _OWN > free else ""


def refusal(nbytes: int, host: str, place: Path | None, reason: str = "is full") -> str:
    """Return one line that says that memory is missing, with a remedy."""
    if place is None:
        return f"{_cannot(nbytes, host)}: the system has no more; use fewer ranks on that host, or one with more memory"
    mount = next(part for part in (place, *place.parents, Path("/")) if part.is_mount())
    return (
        f"{_cannot(nbytes, host)}: {place} {reason}. Enlarge it (mount -o remount,size=… {mount}; docker run "
        "--shm-size=…), remove the files of killed runs there, or name another folder of the host: mpirun "
        "--mca osc_sm_backing_directory DIR"
    )


def _cannot(nbytes: int, host: str) -> str:
    return f"the ranks on host {host} cannot share {nbytes} bytes of memory"


def reserve(memory: Memory) -> bool:
    """Fill ``memory`` with zeros and return whether all of it exists.

    The system writes, as if it read from a file. Where memory is missing it reports an error, and sends no SIGBUS.
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
    """MPI's window, as far as it is needed; used between Lock_all and Unlock_all."""

    def Sync(self) -> None:
        """Issue MPI's memory barrier."""

    def Unlock_all(self) -> None:
        """End the epoch."""

    def Free(self) -> None:
        """Free the memory."""


class ProcessWindow(Window):
    """Memory that processes share.

    A killed process leaves no trace in it, and MPI reports the death only to callers of MPI. So a waiting rank asks the
    system whether the other processes exist.

    Args:
        peers: the processes of the other ranks.
        explain: returns the error that those ranks are gone or, for none, why waiting is useless; ``None`` if it is
            not.
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
    """Return the id of this process and the namespace of the id (0 where the system has only one)."""
    try:
        return os.getpid(), os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return os.getpid(), 0


class Peers:
    """Processes of this host, with the test whether they live.

    Args:
        identities: ``identity()`` of the living process of each rank. Those of another namespace cannot be tested, and
            count as alive.
    """

    def __init__(self, identities: Mapping[int, tuple[int, int]]) -> None:
        here = identity()[1]
        self._processes = {rank: process for rank, (process, space) in identities.items() if space == here}
        # A descriptor refers to this process, even when it waits to be reaped, or another process has its id.
        self._handles: dict[int, int] = {}
        if sys.platform == "linux":
            with suppress(OSError):  # an old kernel, or a container that forbids it
                for rank, process in self._processes.items():
                    self._handles[rank] = os.pidfd_open(process)

    def gone(self) -> list[int]:
        """Return the ranks whose processes have ended."""
        return [rank for rank in self._processes if self._has_ended(rank)]

    def close(self) -> None:
        """Stop testing: all count as alive."""
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
        except PermissionError:  # it exists and belongs to another user
            pass
        return False
