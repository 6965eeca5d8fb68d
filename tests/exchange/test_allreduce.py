"""ALLREDUCE: all ranks have the sum of the gradients, to the last bit, and each updates for itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bpt.comm.base import Communicator
from bpt.comm.courier import Courier
from bpt.comm.threads import run_ranks
from bpt.exchange import EXCHANGES, Bucket
from tests.exchange.groups import Rank

ALLREDUCE = EXCHANGES["ALLREDUCE"]


def test_gradients_are_summed_over_the_ranks() -> None:
    def run(comm: Communicator) -> tuple[object, object]:
        rank = Rank(comm, ALLREDUCE)
        rank.give(a=1.0 + comm.rank, b=10.0 * comm.rank, c=0.5)
        rank.run()
        return rank.gradients, rank.weights

    for number, (gradients, weights) in enumerate(run_ranks(3, run)):
        assert gradients == {"a": [6, 6, 6], "b": [30, 30], "c": [1.5] * 4}  # 1 + 2 + 3, 0 + 10 + 20, 3 · 0.5
        assert weights == {"a": [100 * number] * 3, "b": [100 * number + 1] * 2, "c": [100 * number + 2] * 4}


def test_a_rank_without_samples_takes_part() -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, ALLREDUCE)
        rank.give(a=1, b=2, c=3) if comm.rank == 0 else rank.give(a=None, b=None, c=None)
        rank.run()
        return rank.gradients

    assert run_ranks(2, run) == [{"a": [1, 1, 1], "b": [2, 2], "c": [3] * 4}] * 2


def test_all_have_the_same_bits_iteration_by_iteration() -> None:
    """Sums of numbers whose order matters; and nothing of one iteration stays for the next."""

    def run(comm: Communicator) -> list[bytes]:
        rank = Rank(comm, ALLREDUCE)
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

    first, *others = run_ranks(3, run)
    assert others == [first, first]


def test_everybody_updates_and_nothing_is_broadcast() -> None:
    def run(comm: Communicator) -> None:
        rank = Rank(comm, ALLREDUCE)
        assert not rank.exchange.broadcasts
        assert rank.exchange.frozen() == set()
        assert all(map(rank.exchange.updates, rank.bucket_of.values()))

    run_ranks(2, run)


def test_a_rank_that_is_alone_has_nothing_to_do() -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, ALLREDUCE)
        rank.give(a=1, b=None, c=3)
        rank.run()
        assert comm.counters.take() == {}
        return rank.gradients

    assert run_ranks(1, run) == [{"a": [1, 1, 1], "b": None, "c": [3] * 4}]


def test_each_message_is_counted_by_segment_and_parameter() -> None:
    def run(comm: Communicator) -> dict[tuple[str, str], tuple[int, int]]:
        rank = Rank(comm, ALLREDUCE)
        comm.counters.take()
        rank.run()
        return {key: (t.calls, t.sent) for key, t in comm.counters.take().items()}

    # A ring over 2 ranks sends 2 n (2 - 1) / 2 = n bytes: of 5 and of 4 floats.
    assert run_ranks(2, run) == [{("X0 a … b", "Allreduce"): (1, 20), ("X1 c", "Allreduce"): (1, 16)}] * 2


def test_a_segment_travels_while_the_caller_goes_on() -> None:
    """The sum of segment 1 is complete before segment 0 is even started."""

    def run(comm: Communicator) -> None:
        rank = Rank(comm, ALLREDUCE)
        rank.give(a=1, b=1, c=1)
        rank.exchange.start(1)
        done = comm.Dup()
        rank.courier.submit(done.Barrier, "")
        rank.courier.wait()
        rank.exchange.start(0)
        rank.exchange.wait()
        assert rank.gradients == {"a": [2, 2, 2], "b": [2, 2], "c": [2] * 4}

    run_ranks(2, run)


def test_what_goes_wrong_on_the_way_is_raised_by_wait() -> None:
    class Broken(Bucket):
        def pack_gradients(self) -> list:
            messages = super().pack_gradients()
            messages[0].flags.writeable = False
            return messages

    def run(comm: Communicator) -> None:
        bucket = Broken([("a", nn.Parameter(torch.zeros(2)))], comm.Dup())
        exchange = ALLREDUCE([[bucket]], Courier(comm))
        exchange.start(0)
        exchange.wait()

    with pytest.raises(ValueError, match="read-only"):
        run_ranks(2, run)
