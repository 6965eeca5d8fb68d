"""Uses a window in the way that its first argument names, inside of ``bpt.system.comm.rank_failure.run``.

When all ranks are there, each prints "at <time> <process>".
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator

WAYS: dict[str, Callable[[Communicator], None]] = {}


def way(function: Callable[[Communicator], None]) -> Callable[[Communicator], None]:
    WAYS[function.__name__] = function
    return function


@way
def last_is_killed(comm: Communicator) -> None:
    """It writes 7 before; the others read that afterwards, and then wait for an 8, in two threads each."""
    window = comm.Allocate_shared(1)
    mark = window.Shared_query(comm.size - 1)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            window.wait(lambda: mark[0] == 8)
        except BaseException as error:
            errors.append(error)

    if comm.rank == comm.size - 1:
        mark[0] = 7
        window.Sync()
        os.kill(os.getpid(), signal.SIGKILL)
    while not window._lost():
        time.sleep(0.01)
    window.wait(lambda: mark[0] == 7)
    sys.stdout.write(f"rank {comm.rank} has read {mark[0]}\n")
    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise errors[0]


@way
def ends_without_free(comm: Communicator) -> None:
    """Also while a thread waits, for ever."""
    window = comm.Allocate_shared(1000)
    threading.Thread(target=window.wait, args=(lambda: False,), daemon=True).start()
    comm.Barrier()


@way
def wants_too_much(comm: Communicator) -> None:
    comm.Allocate_shared(2**50 if comm.rank == 0 else 0)


def main(comm: Communicator) -> None:
    comm.Barrier()
    sys.stdout.write(f"at {time.time()} {os.getpid()}\n")
    sys.stdout.flush()
    WAYS[sys.argv[1]](comm)


if __name__ == "__main__":
    sys.exit(rank_failure.run(main))
