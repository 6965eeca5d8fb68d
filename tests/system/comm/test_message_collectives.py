"""Sums made of messages: how many there are, by the number of ranks and hosts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bpt.system.comm import message_collectives
from bpt.system.comm.base import Communicator
from bpt.system.comm.message_collectives import allreduce
from bpt.system.events.totals import Totals
from tests.support.doubles.thread_ranks import run_ranks

FLOATS = 64


@pytest.mark.parametrize(
    ("ranks", "hosts", "worth", "short", "messages"),
    [
        (4, "a" * 4, 2**18, 2**16, 6),  # along a tree 2 (P - 1)
        (8, "a" * 8, 2**18, 2**16, 14),
        (16, "a" * 16, 2**18, 2**16, 30),
        (8, "a" * 8, FLOATS * 4 // 8, 2**16, 112),  # pieces are long enough for a ring: 2 P (P - 1)
        (8, "a" * 8, FLOATS * 4 // 8 + 1, 2**16, 14),
        (8, "a" * 4 + "b" * 4, 2**18, FLOATS * 4, 112),  # between hosts, all but short ones go round a ring
        (8, "a" * 4 + "b" * 4, 2**18, FLOATS * 4 + 1, 14),
    ],
)
def test_messages_of_a_sum(
    ranks: int, hosts: Sequence[str], worth: int, short: int, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_collectives, "WORTH_A_RING", worth)
    monkeypatch.setattr(message_collectives, "SHORT", short)

    def sum_up(comm: Communicator) -> int:
        buffer = np.full(FLOATS, comm.rank, np.float32)
        with comm.events.into(Totals()) as totals:
            allreduce(comm, buffer)
        assert (buffer == ranks * (ranks - 1) // 2).all()
        return sum(traffic.calls for key, traffic in totals.take().items() if key.method == "Isend")

    assert sum(run_ranks(ranks, sum_up, hosts=hosts)) == messages
