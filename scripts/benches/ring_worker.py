"""A rank of ``scripts/bench ring``: sums buffers by both exchanges in turn; the first prints a line for each size."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bpt.allocator import keep_freed_memory
from bpt.comm.base import Buffer, Communicator
from bpt.comm.launch import world as mpi_world
from bpt.comm.ring import ring_allreduce

MOST = 200  # sums in a turn


def seconds_of(comm: Communicator, sum_up: Callable[[Buffer], None], buffer: Buffer, calls: int) -> float:
    """Seconds of one sum, those of the slowest rank."""
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(calls):
        sum_up(buffer)
    slowest: float = max(comm.allgather(time.perf_counter() - start))
    return slowest / calls


def compare(comm: Communicator, size: int, rounds: int, turn: float) -> dict[str, list[float]]:
    """Seconds of one sum of ``size`` bytes of float32 in each turn, by exchange.

    They are zeros: others, summed again and again, would overflow.
    """
    sides: dict[str, Callable[[Buffer], None]] = {"ALLREDUCE": comm.Allreduce, "RING": partial(ring_allreduce, comm)}
    buffer = np.zeros(size // 4, np.float32)
    warm = max(seconds_of(comm, side, buffer, 2) for side in sides.values())
    calls = max(1, min(MOST, round(turn / warm)))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in sorted(sides, reverse=bool(number % 2)):
            seconds[name].append(seconds_of(comm, sides[name], buffer, calls))
    return seconds


def main() -> None:
    sizes, rounds, turn = sys.argv[1:]
    keep_freed_memory()  # as the command line does
    comm = mpi_world()
    for size in map(int, sizes.split(",")):
        seconds = compare(comm, size, int(rounds), float(turn))
        if comm.rank == 0:
            print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
