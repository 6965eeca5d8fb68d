"""What happens when a rank fails: one message, and the end of the job on all ranks.

A rank that fails sends a notice to all others. Those that are well do not look for it; they may be waiting, for ever,
for the one that failed. But if all ranks fail, as when each reads the same bad file, they learn so from each other's
notices, the first one tells, and all leave in good order. If some do not, the lowest rank that has failed tells, and
aborts the job.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bpt.comm.base import Buffer, Communicator, Request
from bpt.comm.launch import launched, launchers_rank, world
from bpt.errors import BptError, UserError

# Seconds that a failed rank gives the others to fail, too: a record that cannot be read is seen by one rank only.
PATIENCE = 1.0
# What a user did wrong all ranks see, but on a busy node one may be behind, by as long as the first one took.
PATIENCE_WITH_USERS = (3.0, 7.0)  # at least, at most
# Seconds after which a rank aborts the job although a lower one should have.
LAST = 3.0


@dataclass(frozen=True)
class Failure:
    """Why a rank's command did not end well.

    Attributes:
        message: one line.
        status: of the process's exit.
        trace: where it happened; "" unless it is a bug in bpt.
    """

    message: str
    status: int = 1
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What there is to tell of ``error``."""
        if isinstance(error, BptError):
            return cls(str(error), error.exit_status)
        if isinstance(error, KeyboardInterrupt):
            return cls("interrupted")
        if isinstance(error, MemoryError):
            return cls("out of memory")
        if isinstance(error, OSError):
            return cls(str(error))
        trace = "".join(traceback.format_exception(error))
        return cls(f"a bug in bpt: {type(error).__name__}: {error}", trace=trace)

    def tell(self, who: str = "") -> None:
        """Print it, in one go, so that the lines of several ranks do not mix."""
        sys.stdout.flush()
        sys.stderr.write(f"{self.trace}error: {who}{self.message}\n")
        sys.stderr.flush()

    def patience(self, took: float) -> float:
        """Seconds that other ranks may take to fail in the same way, where this one ``took`` so many to come here."""
        least, most = PATIENCE_WITH_USERS
        return min(max(least, took), most) if self.status == UserError.exit_status else PATIENCE

    @property
    def digest(self) -> int:
        """Equal for equal messages."""
        return int.from_bytes(hashlib.blake2b(self.message.encode(), digest_size=7).digest(), "little")


def run(command: Callable[[Communicator], None]) -> int:
    """Call ``command`` with the communicator of all ranks, and return the process's exit status.

    Errors of bpt, of the system and bugs are told in one message for all ranks, which names the rank and its host
    unless it is the same on all of them. Under a launcher it does not return after a failure, but ends the process.
    """
    try:
        comm = world()
    except BptError as error:
        status = tell_before_start(error)
    else:
        status = run_on(comm, command)
    if status and launched():
        # Not by the usual way, on which MPI would wait for ranks that are out of reach, and for threads in its calls.
        sys.stdout.flush()
        os._exit(status)
    return status


def tell_before_start(error: BptError) -> int:
    """Tell an error that a rank has met before it could reach the others, and return its exit status.

    Most likely all ranks meet it. Then the first one's exit makes the launcher end the others, before they tell, too.
    """
    rank = launchers_rank()
    if rank:
        time.sleep(PATIENCE)
    Failure.of(error).tell(f"rank {rank} (host {socket.gethostname()}): " if rank else "")
    return error.exit_status


def run_on(comm: Communicator, command: Callable[[Communicator], None]) -> int:
    """``run`` with the ranks of ``comm``; a collective call. Returns if all ranks are well, or none is."""
    notices = comm.Dup()
    start = time.monotonic()
    try:
        command(comm)
    except (Exception, KeyboardInterrupt) as error:
        failure = Failure.of(error)
    else:
        return 0
    if comm.size == 1:
        failure.tell()
        return failure.status
    return _Notices(notices, failure).settle(failure.patience(time.monotonic() - start))


class _Notices:
    """A failed rank's talk with the others that have failed. A notice is (status, digest of the message)."""

    def __init__(self, comm: Communicator, failure: Failure) -> None:
        self._comm = comm
        self._failure = failure
        mine = np.array([failure.status, failure.digest], np.int64)
        self._seen = {comm.rank: mine}  # by rank
        self._awaited: dict[int, tuple[Request, Buffer]] = {}
        self._sent: list[Request] = []  # kept, and never waited for
        for rank in range(comm.size):
            if rank == comm.rank:
                continue
            try:
                notice = np.zeros_like(mine)
                self._awaited[rank] = comm.Irecv(notice, rank), notice
                self._sent.append(comm.Isend(mine, rank))
            except BptError:  # that rank is gone
                continue

    def settle(self, patience: float) -> int:
        """Let one rank tell. Return the exit status if all have failed within ``patience`` seconds, else abort."""
        failure = self._failure
        if not self._all_within(patience) and not (self._comm.rank != min(self._seen) and self._all_within(LAST)):
            failure.tell(self._name)
            time.sleep(0.1)  # the message is still on its way to the launcher
            if self._comm.describe().get("fault tolerance") == "on":
                os._exit(failure.status)  # after a lost rank Open MPI would make the status of an abort 0
            self._comm.Abort(failure.status)
        status, digest = (int(value) for value in self._seen[0])
        if self._comm.rank == 0:
            same = all(int(notice[1]) == digest for notice in self._seen.values())
            failure.tell("" if same else self._name)
        self._comm.Barrier()  # mpirun ends a job when the first rank leaves: not before the message is out
        return status

    def _all_within(self, seconds: float) -> bool:
        """Whether all ranks have failed when so much time has passed."""
        end = time.monotonic() + seconds
        while len(self._seen) < self._comm.size and time.monotonic() < end:
            for rank, (request, notice) in list(self._awaited.items()):
                try:
                    if not request.Test():
                        continue
                    self._seen[rank] = notice
                except BptError:  # it is gone, and will not tell
                    pass
                del self._awaited[rank]
            time.sleep(0.01)
        return len(self._seen) == self._comm.size

    @property
    def _name(self) -> str:
        return f"rank {self._comm.rank} (host {self._comm.host}): "
