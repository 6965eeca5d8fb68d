"""RING: messages between neighbours, which travel while the caller goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bpt.engine.instructions import Wait
from bpt.parallel.exchange import EXCHANGES
from bpt.system.comm.base import Communicator
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank

RING = EXCHANGES["RING"]


def test_each_message_is_counted_by_segment_and_parameter() -> None:
    def run(comm: Communicator) -> dict[tuple[str, str], tuple[int, int, int]]:
        rank = Rank(comm, RING)
        seen = Seen(comm)
        rank.run()
        return {key: (t.calls, t.sent, t.received) for key, t in seen.calls().items()}

    # 5 floats are pieces of 2 and 3, 4 floats of 2 and 2; with 2 ranks each sends both once.
    expected = {
        ("X0 a … b", "Isend"): (2, 20, 0), ("X0 a … b", "Irecv"): (2, 0, 20),
        ("X1 c", "Isend"): (2, 16, 0), ("X1 c", "Irecv"): (2, 0, 16),
    }  # fmt: skip
    assert run_ranks(2, run) == [expected] * 2


def test_a_segment_travels_while_the_caller_goes_on() -> None:
    """The sum of segment 1 is complete before segment 0 is even started."""

    def run(comm: Communicator) -> None:
        rank = Rank(comm, RING)
        rank.give(a=1, b=1, c=1)
        rank.exchange.start(1)
        done = comm.Dup()
        rank.comm_thread.submit(done.Barrier, Wait())
        rank.comm_thread.wait()
        rank.exchange.start(0)
        rank.exchange.wait()
        assert rank.gradients == {"a": [3, 3, 3], "b": [3, 3], "c": [3] * 4}

    run_ranks(3, run)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_two_ranks_give_the_bits_of_allreduce_and_more_its_numbers(ranks: int) -> None:
    """A sum of two has but one order."""

    def run(comm: Communicator) -> tuple[dict[str, Any], dict[str, Any]]:
        found = []
        for kind in ("RING", "ALLREDUCE"):
            rank = Rank(comm, EXCHANGES[kind])
            generator = torch.Generator().manual_seed(comm.rank)
            for parameter in rank.parameters.values():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            rank.run()
            found.append({name: p.grad for name, p in rank.parameters.items()})
        return found[0], found[1]

    tolerance = 0.0 if ranks == 2 else 1e-6
    for ring, library in run_ranks(ranks, run):
        for name, grad in ring.items():
            torch.testing.assert_close(grad, library[name], rtol=tolerance, atol=tolerance)
