"""Runs the checks of ``tests/support/comm_contract`` on each rank, over all ranks and over the first 1, 2, … of them.

Prints ``passed <check> <number of ranks>`` on rank 0 of those. With ``--pieces`` messages are cut in small pieces;
with ``--patient`` ranks sleep while they wait, and make collectives of messages; without they do not.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from bpt.system.comm import pieces
from bpt.system.comm.launch import world
from tests.support.comm_contract import CHECKS


def main() -> None:
    if "--pieces" in sys.argv:
        pieces.PIECE = 8  # bytes: one or two elements
    everybody: Any = world()  # over MPI
    everybody.patient = "--patient" in sys.argv
    if everybody.patient:
        pieces.WORTH_MESSAGES = 1  # byte
    for size in range(1, everybody.size + 1):
        comm = everybody.Split(int(everybody.rank < size))
        if everybody.rank >= size:
            continue
        for check in CHECKS:
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
    main()
