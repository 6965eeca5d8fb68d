"""Runs checks on each rank, over the first 1, 2, … ranks: ``contract_ranks contract|ring|sleep [options]``.

``contract`` are those of ``tests/support/comm_contract``, ``ring`` those of ``ring_checks.py`` and ``tree_checks.py``.
Prints ``passed <check> <number of ranks>`` on rank 0 of those. With ``--pieces`` messages are cut in small pieces;
with ``--patient`` ranks sleep while they wait, and make collectives of messages; without they do not.
"""

from __future__ import annotations

import sys
import time
import traceback
from typing import Any

from bpt.system.comm import pieces, ring_reduction, tree_collectives
from bpt.system.comm.base import Communicator
from bpt.system.comm.launch import world
from tests.support import comm_contract, ring_checks, tree_checks

LATE = 0.2  # seconds


def check_a_wait_for_an_object_leaves_the_core_to_others(comm: Communicator) -> None:
    """The first rank is late; the CPU time of the others tells whether they spin."""
    comm.Barrier()
    start = time.thread_time()
    if comm.rank == 0:
        time.sleep(LATE)
    assert comm.bcast("late") == "late"
    if comm.rank == 0:
        time.sleep(LATE)
    assert comm.allgather(comm.rank) == list(range(comm.size))
    assert time.thread_time() - start < LATE / 4


CHECKS = {
    "contract": comm_contract.CHECKS,
    "ring": (*ring_checks.CHECKS, *tree_checks.CHECKS),
    "sleep": (check_a_wait_for_an_object_leaves_the_core_to_others,),
}


def main(kind: str, *options: str) -> None:
    if "--pieces" in options and kind == "contract":
        pieces.PIECE = 8  # bytes: one or two elements
    elif "--pieces" in options:
        ring_reduction.CHUNK = 24  # bytes
        tree_collectives.CHUNK = 2**18
    everybody: Any = world()  # over MPI
    everybody.longest_sleep = 5e-4 * ("--patient" in options)
    if "--patient" in options and kind == "contract":
        pieces.WORTH_MESSAGES = 1  # byte
    for size in range(1, everybody.size + 1):
        comm = everybody.Split(int(everybody.rank < size))
        if everybody.rank >= size:
            continue
        for check in CHECKS[kind]:
            try:
                check(comm)
                comm.Barrier()
            except BaseException:
                sys.stderr.write(f"rank {comm.rank} of {size}: {check.__name__}\n{traceback.format_exc()}")
                sys.stderr.flush()
                everybody.Abort()
            if comm.rank == 0:
                print("passed", check.__name__, size, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
