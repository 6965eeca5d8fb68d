"""Makes one collective again and again, until a rank is killed: ``dying_ranks KIND RANK SECONDS [--patient]``.

Each rank that is left prints "lost" if it learns that by a LostRankError, else what has happened.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from bpt.base.errors import LostRankError
from bpt.system.comm.base import Communicator
from bpt.system.comm.launch import world

LONG = 20_000  # elements: a broadcast of so many once raised an error that did not tell of the loss


def once(comm: Communicator, kind: str, number: int) -> bool:  # noqa: PLR0911  one a kind
    """Make the collective, and return whether its result is right."""
    size, root, value, rank = comm.size, number % comm.size, float(number), comm.rank
    counts, each = [30] * size, np.repeat(np.arange(size), 30)
    own, whole = np.full(30, value + rank), np.full(30 * size, -1.0)
    if kind == "allgather":
        return comm.allgather(value) == [value] * size
    if kind == "bcast":
        text = ("x" * (number % 3000), number)
        return bool(comm.bcast(text if rank == root else None, root) == text)
    if kind == "Allgatherv":
        comm.Allgatherv(own, whole, counts)
        return bool((whole == value + each).all())
    if kind == "Gatherv":
        comm.Gatherv(own, whole, counts, root)
        return rank != root or bool((whole == value + each).all())
    if kind == "Scatterv":
        comm.Scatterv(np.full(30 * size, value) if rank == root else None, own, counts, root)
        return bool((own == value).all())
    if kind == "Alltoallv":
        comm.Alltoallv(np.full(30 * size, value + rank), counts, whole, counts)
        return bool((whole == value + each).all())
    if kind == "Reduce_scatter":
        comm.Reduce_scatter(np.full(30 * size, value), own, counts)
        return bool((own == value * size).all())
    if kind == "Barrier":
        comm.Barrier()
        return True
    if kind == "Bcast":
        buffer = np.full(LONG, value if rank == root else -1.0)
        comm.Bcast(buffer, root)
        return bool((buffer == value).all())
    buffer = np.full(LONG if number % 2 else 1, value)
    call: Callable[[], None] = (
        (lambda: comm.Reduce(buffer, root)) if kind == "Reduce" else lambda: comm.Allreduce(buffer)
    )
    call()
    return (kind == "Reduce" and rank != root) or bool((buffer == value * size).all())


def main(kind: str, victim: int, seconds: float, patient: bool) -> str:
    everybody: Any = world()
    everybody.longest_sleep = 5e-4 * patient
    comm: Communicator = everybody.Dup()
    if comm.rank == victim:
        threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    number = 0
    try:
        while once(comm, kind, number):
            number += 1
    except LostRankError:
        return "lost"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return f"a wrong value in call {number}"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), "--patient" in sys.argv) + "\n")
    sys.stdout.flush()
    os._exit(0)
