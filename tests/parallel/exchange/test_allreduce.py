"""ALLREDUCE: messages, and that they travel while the caller goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bpt.engine.instructions import Wait
from bpt.parallel.exchange import EXCHANGES, Bucket
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank

ALLREDUCE = EXCHANGES["ALLREDUCE"]


def test_each_message_is_counted_by_segment_and_parameter() -> None:
    def run(comm: Communicator) -> dict[tuple[str, str], tuple[int, int]]:
        rank = Rank(comm, ALLREDUCE)
        seen = Seen(comm)
        rank.run()
        return {key: (t.calls, t.sent) for key, t in seen.calls().items()}

    # A ring over 2 ranks sends 2 n (2 - 1) / 2 = n bytes: of 5 and of 4 floats.
    assert run_ranks(2, run) == [{("X0 a … b", "Allreduce"): (1, 20), ("X1 c", "Allreduce"): (1, 16)}] * 2


def test_a_segment_travels_while_the_caller_goes_on() -> None:
    """The sum of segment 1 is complete before segment 0 is even started."""

    def run(comm: Communicator) -> None:
        rank = Rank(comm, ALLREDUCE)
        rank.give(a=1, b=1, c=1)
        rank.exchange.start(1)
        done = comm.Dup()
        rank.comm_thread.submit(done.Barrier, Wait())
        rank.comm_thread.wait()
        rank.exchange.start(0)
        rank.exchange.wait()
        assert rank.gradients == {"a": [2, 2, 2], "b": [2, 2], "c": [2] * 4}

    run_ranks(2, run)


def test_what_goes_wrong_on_the_way_is_raised_by_wait() -> None:
    class Broken(Bucket):
        def pack_gradients(self) -> list[Any]:
            messages = super().pack_gradients()
            messages[0].flags.writeable = False
            return messages

    def run(comm: Communicator) -> None:
        bucket = Broken([("a", nn.Parameter(torch.zeros(2)))], comm.Dup())
        exchange = ALLREDUCE([[bucket]], CommThread(comm))
        exchange.start(0)
        exchange.wait()

    with pytest.raises(ValueError, match="read-only"):
        run_ranks(2, run)
