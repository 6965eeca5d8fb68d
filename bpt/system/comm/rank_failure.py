"""The failure of a rank: one message, and the end of the job on all ranks.

A rank that fails sends a notice to all others. Healthy ranks do not look for it; they may be waiting, forever, for the
failed one. But if all ranks fail, for example when each reads the same bad file, they learn it from each other's
notices. The first one prints, and all leave in good order. If some do not, the lowest failed rank prints, and aborts
the job.

Under fault tolerance a failed rank ends alone: it prints, and is lost to the others. They decide what that means for
them. Most cannot continue without it, and fail in turn; their failures are not printed again. Here healthy ranks also
send a notice, at their end, and wait for each other's. No rank may leave before all living ranks are done: the launcher
ends the job when some ranks have left with a status, and MPI's own end waits for the dead.
"""

from __future__ import annotations

import hashlib
import math
import os
import select
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from bpt.base.errors import BptError, LostRankError, UserError
from bpt.base.terminal import say
from bpt.system.comm.base import Buffer, Communicator, Request
from bpt.system.comm.launch import launched, launched_by_torchrun, launchers_rank, world
from bpt.system.comm.proxy import is_stopping

# Seconds for which a failed rank waits for others to fail, too. Only one rank sees an unreadable record.
GRACE = 1.0
# All ranks see a user's mistake, but on a busy node one may be late, by the time that the first one needed.
GRACE_WITH_USERS = (3.0, 7.0)  # at least, at most
# Seconds after which a rank aborts the job that a lower one should have aborted.
LAST = 3.0


@dataclass(frozen=True)
class Failure:
    """The reason why a rank's command failed.

    Attributes:
        message: one line.
        status: the exit status of the process.
        trace: the traceback; "" unless it is a bug in bpt.
        loss: whether the reason is the loss of another rank.
    """

    message: str
    status: int = 1
    trace: str = ""
    loss: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure that ``error`` means."""
        if isinstance(error, BptError):
            return cls(str(error), error.exit_status, loss=isinstance(error, LostRankError))
        if isinstance(error, KeyboardInterrupt):
            return cls("interrupted")
        if isinstance(error, MemoryError):
            return cls("out of memory")
        if isinstance(error, OSError):
            return cls(str(error))
        trace = "".join(traceback.format_exception(error))
        return cls(f"a bug in bpt: {type(error).__name__}: {error}", trace=trace)

    def report(self, who: str = "") -> None:
        """Print it in one write, so that the lines of several ranks do not mix."""
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        say(f"{self.trace}error: {who}{self.message}\n")

    def grace(self, took: float) -> float:
        """Return the seconds that other ranks may need to fail in the same way.

        Args:
            took: the seconds that this rank needed to come here.
        """
        least, most = GRACE_WITH_USERS
        return min(max(least, took), most) if self.status == UserError.exit_status else GRACE

    @property
    def digest(self) -> int:
        """Return a digest that is equal for equal messages."""
        return int.from_bytes(hashlib.blake2b(self.message.encode(), digest_size=7).digest(), "little")


def run(command: Callable[[Communicator], None]) -> int:
    """Call ``command`` with the communicator of all ranks, and return the process's exit status.

    Errors of bpt, of the system and bugs are printed in one message for all ranks, which names the rank and its host
    unless it is the same on all of them. Under a launcher it does not return after a failure, but ends the process.
    Under fault tolerance it never returns, and a command that returns ends with 0, whatever ranks have been lost.
    """
    tolerant = False
    try:
        comm = world()
    except BptError as error:
        status = report_before_start(error)
    else:
        tolerant = _is_tolerant(comm)
        status = run_on(comm, command)
    if launched() and (status or tolerant or is_stopping() or launched_by_torchrun()):
        # The libraries' normal ends would wait for unreachable ranks, and for threads in their calls.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)
    return status


def report_before_start(error: BptError) -> int:
    """Print an error that a rank has met before it could reach the others, and return its exit status.

    Most likely all ranks meet it. Then the first one's exit makes the launcher end the others before they print it,
    too.
    """
    rank = launchers_rank()
    if rank:
        time.sleep(GRACE)
    Failure.of(error).report(f"rank {rank} (host {socket.gethostname()}): " if rank else "")
    return error.exit_status


def run_on(comm: Communicator, command: Callable[[Communicator], None]) -> int:
    """Call ``command`` with the ranks of ``comm`` and handle its failure; a collective call.

    It returns the exit status if all ranks succeed, or all fail. Under fault tolerance it returns when all living ranks
    are at their end, successful or not. A single process returns 1 without a message when the reader of its output,
    such as ``head``, has closed it.
    """
    tolerant = _is_tolerant(comm)
    notices = _Notices(comm.Dup())
    # torchrun does not end the others at once. They must know that they fail since this rank has failed.
    listens = tolerant or launched_by_torchrun()
    if listens:
        notices.listen()
    start = time.monotonic()
    try:
        command(comm)
        if comm.size == 1:
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        if comm.size == 1 and isinstance(error, BrokenPipeError) and nobody_reads():
            return 1
        failure = Failure.of(error)
    else:
        if tolerant:
            notices.send(None)
            notices.leave()
        else:
            comm.finalize()
        return 0
    if comm.size == 1:
        failure.report()
        return failure.status
    if not listens:
        notices.listen()
    notices.send(failure)
    return notices.settle(failure, failure.grace(time.monotonic() - start))


def _is_tolerant(comm: Communicator) -> bool:
    return comm.describe().get("fault tolerance") == "on"


def nobody_reads() -> bool:
    """Return whether standard output is a pipe whose reader is gone.

    In that case later output is thrown away.
    """
    try:
        number = sys.stdout.fileno()
        pipe = select.poll()
    except (AttributeError, OSError, ValueError):  # it is not a pipe, or the system has no poll
        return False
    pipe.register(number, 0)
    if not any(event & select.POLLERR for _, event in pipe.poll(0)):
        return False
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), number)
    return True


class _Notices:
    """The messages by which ranks report how they ended.

    A notice is (status, digest of the message, whether it only follows from another rank's failure).
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._seen: dict[int, Buffer] = {}  # by rank
        self._awaited: dict[int, tuple[Request, Buffer]] = {}
        self._sent: list[tuple[Request, Buffer]] = []  # kept alive, but nobody waits for them
        self._others = [rank for rank in range(comm.size) if rank != comm.rank]

    def listen(self) -> None:
        """Prepare to receive the others' notices."""
        for rank in self._others:
            with suppress(BptError):  # the other rank is gone
                notice = np.zeros(3, np.int64)
                self._awaited[rank] = self._comm.Irecv(notice, rank), notice

    def send(self, failure: Failure | None) -> None:
        """Report to the others that this rank has ended."""
        self._poll()
        notice = np.zeros(3, np.int64)
        if failure:
            notice[:] = failure.status, failure.digest, failure.loss and bool(self._failed)
        self._seen[self._comm.rank] = notice
        for rank in self._others:
            with suppress(BptError):  # the other rank is gone
                self._sent.append((self._comm.Isend(notice, rank), notice))

    def leave(self) -> None:
        """Return when all living ranks are at their end."""
        self._all_within(math.inf)
        self._comm.Agree(1)

    def settle(self, failure: Failure, grace: float) -> int:
        """Let one rank print. Return the exit status if all are at their end within ``grace`` seconds, else abort."""
        if not self._all_within(grace) and not (self._comm.rank != self._first and self._all_within(LAST)):
            failure.report(self._name)
            time.sleep(0.1)  # the message is still travelling to the launcher
            self._comm.Abort(failure.status)
        first = self._first
        status, digest = (int(value) for value in self._seen[first][:2])
        if self._comm.rank == first:
            notices = list(self._seen.values())
            same = len(notices) == self._comm.size and all(int(notice[1]) == digest for notice in notices)
            failure.report("" if same else self._name)
        with suppress(LostRankError):  # the failed rank
            self._comm.Agree(1)  # the launcher ends a job when the first rank leaves, so the message must be out before
        return status

    @property
    def _failed(self) -> dict[int, Buffer]:
        return {rank: notice for rank, notice in self._seen.items() if notice[0]}

    @property
    def _first(self) -> int:
        """Return the lowest of the ranks whose failure is not a consequence of another's: it prints."""
        return min(self._failed, key=lambda rank: (int(self._failed[rank][2]), rank))

    def _all_within(self, seconds: float) -> bool:
        """Return whether all living ranks are at their end after this number of seconds."""
        end = time.monotonic() + seconds
        while self._awaited and time.monotonic() < end:
            self._poll()
            with suppress(KeyboardInterrupt):  # the rank is already ending
                time.sleep(0.01)
        return not self._awaited

    def _poll(self) -> None:
        """Look for new notices."""
        for rank, (request, notice) in list(self._awaited.items()):
            try:
                if request.Test():
                    self._seen[rank] = notice
                    del self._awaited[rank]
            except LostRankError:  # it sends no notice
                del self._awaited[rank]
            except BptError:  # it is unreachable
                continue

    @property
    def _name(self) -> str:
        return f"rank {self._comm.rank} (host {self._comm.host}): "
