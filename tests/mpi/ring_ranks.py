"""Runs the checks of ``tests/support/ring_checks.py`` and ``tree_checks.py`` on each rank, over the first 2, 3, …

Prints ``passed <check> <number of ranks>`` on rank 0 of those. With ``--chunks`` pieces go in many messages; with
``--patient`` ranks sleep while they wait.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from bpt.system.comm import ring_reduction, tree_collectives
from bpt.system.comm.launch import world
from tests.support import ring_checks, tree_checks


def main() -> None:
    if "--chunks" in sys.argv:
        ring_reduction.CHUNK = 24  # bytes
        tree_collectives.CHUNK = 2**18
    everybody: Any = world()  # over MPI
    everybody.patient = "--patient" in sys.argv
    for size in range(2, everybody.size + 1):
        comm = everybody.Split(int(everybody.rank < size))
        if everybody.rank >= size:
            continue
        for check in (*ring_checks.CHECKS, *tree_checks.CHECKS):
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
