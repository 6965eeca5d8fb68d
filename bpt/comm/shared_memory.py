"""Room for memory that processes share: asked for before it is taken, and taken before it is used.

Such memory is a file in a file system that is kept in memory, which may be small: 64 MiB in a container. The library
may make the file without having the memory; a store would then end the process by SIGBUS, without a word.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from bpt.comm.window import Memory

_FOLDER = "OMPI_MCA_osc_sm_backing_directory"  # what mpirun --mca osc_sm_backing_directory sets
_USUAL = Path("/dev/shm")
_OWN = 2**20  # bytes that the library wants for itself


def folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where the files of windows are; None: that is not known."""
    named = environment.get(_FOLDER)
    return Path(named) if named else _USUAL if _USUAL.is_dir() else None


def shortage(nbytes: int, host: str, place: Path | None, free: int | None = None) -> str:
    """Why there cannot be ``nbytes`` bytes of shared memory on ``host``, and what to do; "": as far as known there can.

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
