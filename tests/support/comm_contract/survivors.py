"""Collectives of the ranks that live, where all do; those that have lost some are in tests/system/comm/test_loss.py."""

from __future__ import annotations

import numpy as np

from bpt.system.comm.base import Communicator


def check_agree_is_on_the_bits_that_all_have_set(comm: Communicator) -> None:
    assert comm.Agree(0b1000_0000 | 1 << comm.rank) == (0b1000_0000 if comm.size > 1 else 0b1000_0001)
    assert comm.Agree(1) == 1
    assert comm.Agree(int(comm.rank != comm.size - 1)) == 0


def check_shrink_of_ranks_that_all_live_is_a_copy_apart(comm: Communicator) -> None:
    whole = comm.Dup()
    whole.Agree(1)  # no rank is in another call here when the first one shrinks, which would end that
    same = whole.Shrink()
    assert (same.rank, same.size, same.events) == (comm.rank, comm.size, comm.events)
    assert same.allgather(comm.rank) == list(range(comm.size))
    same.Allreduce(total := np.array([float(comm.rank)]))
    assert total[0] == comm.size * (comm.size - 1) / 2
    same.Agree(1)
    again = same.Shrink()
    assert again.Agree(3) == 3
    assert again.Split(comm.rank).size == 1
