"""RING and TREE against the library: the ring and the tree of bpt's messages against the library's collectives.

Buffer by buffer, in turn. RING has ALLREDUCE beside it; TREE, which sums to one rank and broadcasts from there, itself
with ``tree_param { sends: LIBRARY }``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bpt.system.comm.base import Buffer, Communicator
from bpt.system.comm.ring_reduction import ring_allreduce
from bpt.system.comm.tree_collectives import tree_bcast, tree_reduce
from scripts.benches.harness.arguments import some_of
from scripts.benches.harness.launch import JobError, run_worker
from scripts.benches.harness.turns import in_turn, ratio

HELP = "exchanges RING and TREE (bpt's messages) against the library's collectives, by size of the buffer"
RIVALS = {"RING": "ALLREDUCE", "TREE": "LIBRARY"}
SIZES = tuple(10**3 * 4**power for power in range(9))  # bytes: 1 kB … 65.5 MB
MOST = 200  # sums in a turn
Way = Callable[[Buffer], object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, separated by commas (default %(default)s)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of a buffer (default %(default)s)")
    known = some_of(RIVALS, "exchange")
    parser.add_argument("--exchanges", type=known, default=",".join(RIVALS), help="(default %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side (default %(default)s)")
    parser.add_argument("--turn", type=float, default=0.1, help="seconds of a turn, about (default %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    sizes = [int(size) for size in arguments.sizes.split(",")]
    order = {"sizes": sizes, "rounds": arguments.rounds, "turn": arguments.turn}
    print(f"{os.cpu_count()} cores; medians of {arguments.rounds} turns; below 1, RING or TREE is faster")
    for exchange in arguments.exchanges:
        _table(exchange, sizes, order, arguments.ranks)


def _table(exchange: str, sizes: Sequence[int], order: dict[str, Any], numbers: str) -> None:
    rival = RIVALS[exchange]
    print(f"{'ranks':>5} {'kB':>10} {rival + ' ms':>13} {exchange + ' ms':>10} {'ratio':>6}  quartiles of the ratio")
    for ranks in map(int, numbers.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            try:
                measured = run_worker("ring", {"exchange": exchange, **order}, Path(folder), ranks, threads=1)
            except JobError as error:
                sys.exit(f"{ranks} ranks have failed: {error}")
        for size, seconds in zip(sizes, measured, strict=True):
            print(row(ranks, size, seconds[rival], seconds[exchange]), flush=True)


def row(ranks: int, size: int, library: Sequence[float], ours: Sequence[float]) -> str:
    """A line of the table. Turns that followed each other make a ratio."""
    one, other = (f"{median(seconds) * 1e3:.3f}" for seconds in (library, ours))
    return f"{ranks:>5} {size / 1e3:>10.0f} {one:>13} {other:>10} {ratio(ours, library)}"


def work(order: dict[str, Any], world: Communicator) -> list[dict[str, list[float]]]:
    """A rank: seconds of one sum in each turn, by size and exchange."""
    return [compare(world, order["exchange"], size, order["rounds"], order["turn"]) for size in order["sizes"]]


def compare(comm: Communicator, exchange: str, size: int, rounds: int, turn: float) -> dict[str, list[float]]:
    """Seconds of one sum of ``size`` bytes of float32 in each turn, by ``exchange`` and by its rival.

    They are zeros: others, summed again and again, would overflow.
    """
    library: dict[str, tuple[Way, ...]] = {"RING": (comm.Allreduce,), "TREE": (comm.Reduce, comm.Bcast)}
    own: dict[str, tuple[Way, ...]] = {
        "RING": (partial(ring_allreduce, comm),),
        "TREE": (partial(tree_reduce, comm), partial(tree_bcast, comm)),
    }
    sides = {RIVALS[exchange]: library[exchange], exchange: own[exchange]}
    buffer = np.zeros(size // 4, np.float32)
    warm = max(seconds_of(comm, side, buffer, 2) for side in sides.values())
    calls = max(1, min(MOST, round(turn / warm)))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for name in in_turn(list(sides), rounds):
        seconds[name].append(seconds_of(comm, sides[name], buffer, calls))
    return seconds


def seconds_of(comm: Communicator, sum_up: Sequence[Way], buffer: Buffer, calls: int) -> float:
    """Seconds of one sum, those of the slowest rank."""
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(calls):
        for way in sum_up:
            way(buffer)
    slowest: float = max(comm.allgather(time.perf_counter() - start))
    return slowest / calls
