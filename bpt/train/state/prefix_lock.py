"""PrefixLock: allows one live run for a ``snapshot_prefix``, because two would overwrite each other's files."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from bpt.base.atomic import leftovers
from bpt.base.errors import FileError, UserError, WriteError
from bpt.train.state.writing import violations

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

LOG = logging.getLogger("bpt")

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def held_for(plan: RunPlan) -> AbstractContextManager[object]:
    """Return the lock for a run of ``plan``, or no lock if it writes no snapshots or cannot write them here."""
    writes = (plan.snapshot or plan.snapshot_after_train) and not any(violations(plan))
    return PrefixLock(plan.snapshot_prefix) if writes else nullcontext()


class PrefixLock:
    """A lock held while a run may write snapshots under a prefix; it also removes files of killed runs.

    The file ``<prefix>.lock`` names host and process. The kernel holds the lock and releases it however the process
    ends, so the file of a killed run locks no one out. Most network file systems support such locks; on one without
    them, bpt warns and continues without a lock.

    Args:
        prefix: the prefix of the snapshots.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._path = Path(f"{prefix}.lock")
        self._descriptor = -1

    def __enter__(self) -> PrefixLock:
        """Take the lock.

        Raises:
            UserError: a live run has the lock; the message names it.
            WriteError: the file cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            while not self._try():
                pass
        except OSError as error:
            raise WriteError(self._path, error.strerror or error) from None
        for path in leftovers(f"{self._prefix}_iter_"):
            LOG.info("Removing %s, which a run that was killed had not finished", path)
            Path(path).unlink(missing_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.unlink(missing_ok=True)  # while it is locked: a waiting run checks that the file exists
        os.close(self._descriptor)

    def _try(self) -> bool:
        """Lock the file; return ``False`` if it has been removed meanwhile."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder_of(self._descriptor)
            owner = f": {holder}" if holder else ""
            os.close(self._descriptor)
            raise UserError(
                f"snapshot_prefix {self._prefix}: a live run writes its snapshots there{owner}; wait for it, end it, "
                "or choose another snapshot_prefix"
            ) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(self._descriptor)
                raise
            LOG.warning("%s: this file system has no locks; make sure that no other run has this prefix", self._path)
        try:
            there = os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            there = False
        if not there:
            os.close(self._descriptor)
            return False
        if holder := _holder_of(self._descriptor):
            LOG.info("Taking over %s: %s, which has ended without removing it", self._path, holder)
        own = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(own).encode() + b"\n", 0)
        return True


@dataclass(frozen=True)
class LockHolder:
    """The process that has written a lock's file.

    Attributes:
        host, process, since: its host, its process and the time, as it has written them.
        lives: whether it still has the lock, if this file system supports locks.
    """

    host: str
    process: int
    since: str
    lives: bool = True

    def __str__(self) -> str:
        return f"process {self.process} on host {self.host}, since {self.since}"


def holder_of(prefix: str) -> LockHolder | None:
    """Return the run that has the lock on a ``snapshot_prefix``, or ``None`` if there is none.

    Raises:
        FileError: the lock's file cannot be read.
    """
    path = Path(f"{prefix}.lock")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror or error}") from None
    try:
        holder = _holder_of(descriptor)
        return holder and replace(holder, lives=_is_locked(descriptor))
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        return error.errno in _UNSUPPORTED
    return False


def _holder_of(descriptor: int) -> LockHolder | None:
    """Return the process that has written the file, or ``None`` if the file does not name one."""
    try:
        facts = json.loads(os.pread(descriptor, 4096, 0))
        return LockHolder(str(facts["host"])[:255], int(facts["pid"]), str(facts["since"])[:30])
    except (ValueError, KeyError, TypeError):
        return None
