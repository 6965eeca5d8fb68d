"""What all exchanges promise in which every rank updates: the sum of the gradients, equal to the last bit."""

from __future__ import annotations

import pytest
import torch

from bpt.parallel.exchange import EXCHANGES
from bpt.system.comm.base import Communicator
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
