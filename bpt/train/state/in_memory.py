"""Snapshots in the memory of the first rank's host, for a job that restarts after all of its ranks have ended.

They have the form of snapshots on disk, in a folder of the in-memory file system, which survives processes but not the
host. They are written at the speed of memory, verified like others, and found by ``auto`` under the same
``snapshot_prefix``. Other hosts get the files when a run continues from them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bpt.base.errors import WriteError
from bpt.base.private_folder import is_private
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.comm.processes import shared_folder as place_in_memory

LOG = logging.getLogger("bpt")

OF_SNAPSHOTS = "bpt_snapshot_"
_NAME = "snapshot"


def prefix_in_memory(prefix: str) -> str | None:
    """Return the prefix of snapshots in memory for a ``snapshot_prefix``, or ``None`` without such a file system."""
    place = place_in_memory()
    if place is None or not prefix:
        return None
    digest = hashlib.blake2b(os.fsencode(os.path.realpath(prefix)), digest_size=8).hexdigest()
    return str(place / f"{OF_SNAPSHOTS}{os.geteuid()}_{digest}" / _NAME)


def prefixes(prefix: str) -> tuple[str, ...]:
    """Return the prefixes under which ``auto`` searches for snapshots."""
    ours = prefix_in_memory(prefix)
    return (prefix, ours) if ours and is_private(Path(ours).parent) else (prefix,)


def make_room(prefix: str) -> str:
    """Make the folder, and return the prefix of snapshots in it.

    Raises:
        WriteError: there is no in-memory file system, or the folder belongs to another user.
    """
    ours = prefix_in_memory(prefix)
    if ours is None:
        raise WriteError("a snapshot in memory", "this system has no /dev/shm")
    folder = Path(ours).parent
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise WriteError(folder, error.strerror or error) from None
    if not is_private(folder):
        raise WriteError(folder, "is not a folder of this user alone")
    return ours


def remove_older(path: str) -> None:
    """Remove the snapshots beside the one with the solver state at ``path``, which has just been written."""
    kept = Path(path).stem
    for file in Path(path).parent.glob(f"{_NAME}_iter_*"):
        if file.stem != kept:
            file.unlink(missing_ok=True)


def remove(prefix: str) -> None:
    """Remove the snapshots in memory: a newer one is on disk, or the run has ended."""
    ours = prefix_in_memory(prefix)
    if ours and is_private(Path(ours).parent):
        shutil.rmtree(Path(ours).parent, ignore_errors=True)


@contextmanager
def on_all_hosts(path: str, world: Communicator) -> Iterator[str]:
    """Provide the path at which a rank finds the snapshot with the solver state at ``path``; a collective call.

    The first rank's host has it. If it is in memory, the other hosts get its files for the duration of the block, each
    in a separate folder, because "hosts" such as containers may share their memory.

    Raises:
        WriteError: a host does not have enough memory for it.
    """
    hosts, folder = world.allgather(world.host), Path(path).parent
    if not folder.name.startswith(OF_SNAPSHOTS) or len(set(hosts)) == 1:
        yield path
        return
    first = hosts.index(world.host)  # the first rank on this host
    here = folder.with_name(f"{folder.name}_for_rank_{first}") if first else folder
    takes = world.rank == first > 0
    try:
        for name in world.bcast(sorted(file.name for file in folder.glob(f"{Path(path).stem}.*"))):
            own = np.fromfile(folder / name, np.uint8) if world.rank == 0 else None
            size = world.bcast(None if own is None else own.size)
            content: Buffer = np.empty(size, np.uint8) if own is None else own
            world.Bcast(content)
            if takes:
                _put(here / name, content)
        world.Barrier()
        yield str(here / Path(path).name)
        world.Barrier()  # all ranks of the host must read the files before they are removed
    finally:
        if takes:
            shutil.rmtree(here, ignore_errors=True)


def _put(path: Path, content: Buffer) -> None:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not is_private(path.parent):
            raise WriteError(path.parent, "is not a folder of this user alone")
        content.tofile(path)
    except OSError as error:
        raise WriteError(path, error.strerror or error) from None
