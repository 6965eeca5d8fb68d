"""Fails in the way that its first argument names, inside of ``bpt.system.comm.rank_failure.run``.

A second argument gives the rank that it is about. When all ranks are there, each prints "at <time> <process>".
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from bpt.base.errors import DataError, UsageError
from bpt.data.prefetch import Prefetcher
from bpt.engine.instructions import ExchangeGradients
from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread

WAYS: dict[str, Callable[[Communicator, int], None]] = {}


def way(function: Callable[[Communicator, int], None]) -> Callable[[Communicator, int], None]:
    WAYS[function.__name__] = function
    return function


@way
def all_see_a_mistake(comm: Communicator, who: int) -> None:
    raise UsageError("no such flag")


@way
def lost_record(comm: Communicator, who: int) -> None:
    train(comm, lambda: fail("record 7") if comm.rank == who else None)


@way
def lost_record_while_others_compute(comm: Communicator, who: int) -> None:
    train(comm, lambda: fail("record 8") if comm.rank == who else compute())


@way
def all_lose_records_with_a_call_under_way(comm: Communicator, who: int) -> None:
    train(comm, lambda: fail("all records"), waits=comm.rank == who)


@way
def bug(comm: Communicator, who: int) -> None:
    train(comm, lambda: dict[str, int]()["conv1"] if comm.rank == who else None)


@way
def killed(comm: Communicator, who: int) -> None:
    train(comm, lambda: os.kill(os.getpid(), signal.SIGKILL) if comm.rank == who else None)


@way
def none_until_the_launcher_is_killed(comm: Communicator, who: int) -> None:
    train(comm, lambda: threading.Event().wait(60))


def train(comm: Communicator, work: Callable[[], object], waits: bool = True) -> None:
    """Do ``work`` with what a rank in training has: a thread that loads data, and a comm_thread.

    Args:
        waits: whether the comm_thread is in a call meanwhile, which does not end before rank 0 has done its work.
    """
    prefetcher = Prefetcher(lambda position: position, step=1, depth=2)
    prefetcher.next()
    comm_thread = CommThread(comm)
    twin = comm.Dup()
    if waits and comm.rank != 0:
        comm_thread.submit(lambda: twin.Allreduce(np.zeros(1)), ExchangeGradients(0))
    work()
    comm_thread.submit(lambda: twin.Allreduce(np.zeros(1)), ExchangeGradients(0))
    comm_thread.wait()


def compute() -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        sum(range(10_000))


def fail(what: str) -> None:
    raise DataError(f"a.lmdb: {what} cannot be read")


def main(comm: Communicator) -> None:
    comm.Barrier()
    sys.stdout.write(f"at {time.time()} {os.getpid()}\n")
    sys.stdout.flush()
    WAYS[sys.argv[1]](comm, int(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(rank_failure.run(main))
