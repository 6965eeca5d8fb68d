"""What all exchanges promise in which every rank updates: the sum of the gradients, equal to the last bit.

And what ALLREDUCE and RING alone do: which messages they send, which travel while the caller goes on.
"""

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

HOSTS = [None, ["a", "a", "b"], ["a", "b", "a"], ["a", "b", "c"]]
HOST_IDS = ["one host", "two hosts", "ranks in turn", "a host each"]

everybody_updates = pytest.mark.parametrize("kind", ["ALLREDUCE", "CGDP", "RING"])


@everybody_updates
@pytest.mark.parametrize("hosts", HOSTS, ids=HOST_IDS)
def test_gradients_are_summed_over_the_ranks(kind: str, hosts: list[str] | None) -> None:
    def run(comm: Communicator) -> tuple[object, object]:
        rank = Rank(comm, EXCHANGES[kind])
        rank.give(a=1.0 + comm.rank, b=10.0 * comm.rank, c=0.5)
        rank.run()
        return rank.gradients, rank.weights

    for number, (gradients, weights) in enumerate(run_ranks(3, run, hosts=hosts)):
        assert gradients == {"a": [6, 6, 6], "b": [30, 30], "c": [1.5] * 4}  # 1 + 2 + 3, 0 + 10 + 20, 3 · 0.5
        assert weights == {"a": [100 * number] * 3, "b": [100 * number + 1] * 2, "c": [100 * number + 2] * 4}


@everybody_updates
@pytest.mark.parametrize("hosts", HOSTS, ids=HOST_IDS)
def test_a_rank_without_samples_takes_part(kind: str, hosts: list[str] | None) -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, EXCHANGES[kind])
        rank.give(a=1, b=2, c=3) if comm.rank == 0 else rank.give(a=None, b=None, c=None)
        rank.run()
        return rank.gradients

    assert run_ranks(3, run, hosts=hosts) == [{"a": [1, 1, 1], "b": [2, 2], "c": [3] * 4}] * 3


@everybody_updates
@pytest.mark.parametrize("hosts", HOSTS, ids=HOST_IDS)
def test_all_have_the_same_bits_iteration_by_iteration(kind: str, hosts: list[str] | None) -> None:
    """Sums of numbers whose order matters; and nothing of one iteration stays for the next."""

    def run(comm: Communicator) -> list[bytes]:
        rank = Rank(comm, EXCHANGES[kind])
        found = []
        for iteration in range(3):
            generator = torch.Generator().manual_seed(10 * iteration + comm.rank)
            for parameter in rank.parameters.values():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            mine = {name: p.grad.double() for name, p in rank.parameters.items() if p.grad is not None}
            rank.run()
            for name, own in mine.items():
                theirs = comm.allgather(own)
                grad = rank.parameters[name].grad
                assert grad is not None
                torch.testing.assert_close(grad.double(), sum(theirs), rtol=1e-6, atol=1e-6)
            found.append(b"".join(p.grad.numpy().tobytes() for p in rank.parameters.values() if p.grad is not None))
        return found

    first, *others = run_ranks(3, run, hosts=hosts)
    assert others == [first, first]


@everybody_updates
def test_everybody_updates_and_nothing_is_broadcast(kind: str) -> None:
    def run(comm: Communicator) -> None:
        rank = Rank(comm, EXCHANGES[kind])
        assert not rank.exchange.broadcasts
        assert rank.exchange.frozen() == set()
        assert all(map(rank.exchange.updates, rank.bucket_of.values()))

    run_ranks(2, run)


@everybody_updates
def test_a_rank_that_is_alone_has_nothing_to_do(kind: str) -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, EXCHANGES[kind])
        rank.give(a=1, b=None, c=3)
        seen = Seen(comm)
        rank.run()
        assert seen.take() == {}
        return rank.gradients

    assert run_ranks(1, run) == [{"a": [1, 1, 1], "b": None, "c": [3] * 4}]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # A ring over 2 ranks sends 2 n (2 - 1) / 2 = n bytes: of 5 and of 4 floats.
        ("ALLREDUCE", {("X0 a … b", "Allreduce"): (1, 20, 20), ("X1 c", "Allreduce"): (1, 16, 16)}),
        # 5 floats are pieces of 2 and 3, 4 floats of 2 and 2; with 2 ranks each sends both once.
        ("RING", {("X0 a … b", "Isend"): (2, 20, 0), ("X0 a … b", "Irecv"): (2, 0, 20),
                  ("X1 c", "Isend"): (2, 16, 0), ("X1 c", "Irecv"): (2, 0, 16)}),
    ],
)  # fmt: skip
def test_each_message_is_counted_by_segment_and_parameter(
    kind: str, expected: dict[tuple[str, str], tuple[int, int, int]]
) -> None:
    def run(comm: Communicator) -> dict[tuple[str, str], tuple[int, int, int]]:
        rank = Rank(comm, EXCHANGES[kind])
        seen = Seen(comm)
        rank.run()
        return {key: (t.calls, t.sent, t.received) for key, t in seen.calls().items()}

    assert run_ranks(2, run) == [expected] * 2


@pytest.mark.parametrize("kind", ["ALLREDUCE", "RING"])
def test_a_segment_travels_while_the_caller_goes_on(kind: str) -> None:
    """The sum of segment 1 is complete before segment 0 is even started."""

    def run(comm: Communicator) -> None:
        rank = Rank(comm, EXCHANGES[kind])
        rank.give(a=1, b=1, c=1)
        rank.exchange.start(1)
        done = comm.Dup()
        rank.comm_thread.submit(done.Barrier, Wait())
        rank.comm_thread.wait()
        rank.exchange.start(0)
        rank.exchange.wait()
        assert rank.gradients == {"a": [3, 3, 3], "b": [3, 3], "c": [3] * 4}

    run_ranks(3, run)


def test_what_goes_wrong_on_the_way_is_raised_by_wait() -> None:
    class Broken(Bucket):
        def pack_gradients(self) -> list[Any]:
            messages = super().pack_gradients()
            messages[0].flags.writeable = False
            return messages

    def run(comm: Communicator) -> None:
        bucket = Broken([("a", nn.Parameter(torch.zeros(2)))], comm.Dup())
        exchange = EXCHANGES["ALLREDUCE"]([[bucket]], CommThread(comm))
        exchange.start(0)
        exchange.wait()

    with pytest.raises(ValueError, match="read-only"):
        run_ranks(2, run)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_two_ranks_of_a_ring_give_the_bits_of_allreduce_and_more_its_numbers(ranks: int) -> None:
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
