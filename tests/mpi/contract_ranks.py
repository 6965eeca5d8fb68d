"""Runs checks on each rank, over the first 1, 2, … ranks: ``contract_ranks contract|ring [options]``.

``contract`` are those of ``tests/support/comm_contract``, ``ring`` those of ``ring_checks.py`` and ``tree_checks.py``.
Prints ``passed <check> <number of ranks>`` on rank 0 of those. With ``--pieces`` messages are cut in small pieces;
with ``--patient`` ranks sleep while they wait, and make collectives of messages; without they do not.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from bpt.system.comm import pieces, ring_reduction, tree_collectives
from bpt.system.comm.launch import world
from tests.support import comm_contract, ring_checks, tree_checks

CHECKS = {"contract": comm_contract.CHECKS, "ring": (*ring_checks.CHECKS, *tree_checks.CHECKS)}


def main(kind: str, *options: str) -> None:
    if "--pieces" in options and kind == "contract":
        pieces.PIECE = 8  # bytes: one or two elements
    elif "--pieces" in options:
        ring_reduction.CHUNK = 24  # bytes
        tree_collectives.CHUNK = 2**18
    everybody: Any = world()  # over MPI
    everybody.patient = "--patient" in options
    if everybody.patient and kind == "contract":
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
