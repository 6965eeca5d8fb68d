"""CGDP: all ranks have the sum of the gradients, to the last bit, on one host and on several."""

from __future__ import annotations

import pytest
import torch

from bpt.comm.base import Communicator
from bpt.comm.threads import run_ranks
from bpt.exchange import EXCHANGES
from bpt.exchange.cgdp import exchange
from tests.exchange.cgdp.delays import delay_streams
from tests.exchange.groups import Rank

CGDP = EXCHANGES["CGDP"]
HOSTS = [None, ["a", "a", "b"], ["a", "b", "a"], ["a", "b", "c"]]
HOST_IDS = ["one host", "two hosts", "ranks in turn", "a host each"]


@pytest.mark.parametrize("hosts", HOSTS, ids=HOST_IDS)
def test_gradients_are_summed_over_the_ranks(hosts: list[str] | None) -> None:
    def run(comm: Communicator) -> tuple[object, object]:
        rank = Rank(comm, CGDP)
        rank.give(a=1.0 + comm.rank, b=10.0 * comm.rank, c=0.5)
        rank.run()
        return rank.gradients, rank.weights

    for number, (gradients, weights) in enumerate(run_ranks(3, run, hosts=hosts)):
        assert gradients == {"a": [6, 6, 6], "b": [30, 30], "c": [1.5] * 4}  # 1 + 2 + 3, 0 + 10 + 20, 3 · 0.5
        assert weights == {"a": [100 * number] * 3, "b": [100 * number + 1] * 2, "c": [100 * number + 2] * 4}


def test_a_rank_without_samples_takes_part() -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, CGDP)
        rank.give(a=1, b=2, c=3) if comm.rank == 0 else rank.give(a=None, b=None, c=None)
        rank.run()
        return rank.gradients

    assert run_ranks(2, run) == [{"a": [1, 1, 1], "b": [2, 2], "c": [3] * 4}] * 2


@pytest.mark.parametrize("hosts", HOSTS, ids=HOST_IDS)
def test_all_have_the_same_bits_iteration_by_iteration(hosts: list[str] | None) -> None:
    """Sums of numbers whose order matters, of segments that change; and nothing of one iteration stays for the next."""

    def run(comm: Communicator) -> list[bytes]:
        rank = Rank(comm, CGDP)
        found = []
        for iteration in range(4):
            generator = torch.Generator().manual_seed(10 * iteration + comm.rank)
            for parameter in rank.parameters.values():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            mine = {name: p.grad.double() for name, p in rank.parameters.items() if p.grad is not None}
            rank.run()
            for name, own in mine.items():
                grad = rank.parameters[name].grad
                assert grad is not None
                torch.testing.assert_close(grad.double(), sum(comm.allgather(own)), rtol=1e-6, atol=1e-6)
            found.append(b"".join(p.grad.numpy().tobytes() for p in rank.parameters.values() if p.grad is not None))
        return found

    first, *others = run_ranks(3, run, hosts=hosts)
    assert others == [first, first]


def test_large_gradients_are_summed_in_slices() -> None:
    """More elements than one rank sums alone: every element is summed once, by some rank."""
    size = 3 * 2**14 + 5

    def run(comm: Communicator) -> torch.Tensor:
        rank = Rank(comm, CGDP, sizes={"a": size, "b": 1, "c": 2**14})
        for number, parameter in enumerate(rank.parameters.values()):
            parameter.grad = torch.arange(float(parameter.numel())) * (comm.rank + 1) + number
        rank.run()
        return torch.cat([p.grad.flatten() for p in rank.parameters.values() if p.grad is not None])

    # Ranks have 1, 2 and 3 times the index: 6 times; and 3 times the number of the parameter.
    expected = torch.cat([torch.arange(float(n)) * 6 + 3 * number for number, n in enumerate((size, 1, 2**14))])
    for found in run_ranks(3, run):
        assert torch.equal(found, expected)


def test_everybody_updates_and_nothing_is_broadcast() -> None:
    def run(comm: Communicator) -> None:
        rank = Rank(comm, CGDP)
        assert not rank.exchange.broadcasts
        assert rank.exchange.frozen() == set()

    run_ranks(2, run)


def test_a_rank_that_is_alone_has_nothing_to_do() -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, CGDP)
        rank.give(a=1, b=None, c=3)
        rank.run()
        assert comm.counters.take() == {}
        return rank.gradients

    assert run_ranks(1, run) == [{"a": [1, 1, 1], "b": None, "c": [3] * 4}]


def test_a_segment_comes_back_while_the_caller_goes_on() -> None:
    """The sums of segment 1 are back before segment 0 is even started (B-2-0-2)."""

    def run(comm: Communicator) -> None:
        rank = Rank(comm, CGDP)
        rank.give(a=1, b=1, c=1)
        rank.exchange.start(1)
        assert isinstance(rank.exchange, exchange.Cgdp)
        rank.exchange._h2d.record().wait()
        assert rank.gradients == {"a": [1, 1, 1], "b": [1, 1], "c": [2] * 4}
        rank.exchange.start(0)
        rank.exchange.wait()
        assert rank.gradients == {"a": [2, 2, 2], "b": [2, 2], "c": [2] * 4}

    run_ranks(2, run)


def test_segments_can_be_cut_anew() -> None:
    def run(comm: Communicator) -> list[object]:
        rank = Rank(comm, CGDP)
        found = []
        for names in ((("a", "b"), ("c",)), (("a", "b", "c"),), (("a",), ("b",), ("c",)), (("a",), ("c", "b"))):
            rank.cut(names)
            rank.give(a=1, b=2, c=3)
            rank.run()
            found.append(rank.gradients)
        return found

    assert run_ranks(2, run) == [[{"a": [2] * 3, "b": [4] * 2, "c": [6] * 4}] * 4] * 2


def test_each_stage_is_counted_by_segment_and_parameter() -> None:
    def run(comm: Communicator) -> dict[tuple[str, str], tuple[int, int]]:
        rank = Rank(comm, CGDP)
        comm.counters.take()
        rank.run()
        return {key: (t.calls, t.sent) for key, t in comm.counters.take().items() if key[1] != "wait"}

    stages = {("D2H", 1), ("accumulate", 0), ("H2D", 1)}
    expected = {
        (f"X{segment} {name}", method): (1, counts * nbytes)
        for segment, name, nbytes in ((0, "a … b", 20), (1, "c", 16))
        for method, counts in stages
    }
    assert run_ranks(2, run) == [expected] * 2


def test_what_goes_wrong_in_a_stream_is_raised_by_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(exchange.HostSum):
        def accumulate(self, *arguments: object) -> None:
            raise ValueError("cannot add")

    monkeypatch.setattr(exchange, "HostSum", Broken)

    def run(comm: Communicator) -> None:
        Rank(comm, CGDP).run()

    with pytest.raises(ValueError, match="cannot add"):
        run_ranks(2, run)


@pytest.mark.parametrize("hosts", [None, ["a", "a", "b"]], ids=["one host", "two hosts"])
def test_delays_change_nothing(hosts: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 iterations of 3 ranks, every stage of every stream delayed at random: always the numbers of one process.

    Gradients are whole numbers, and so are their sums, exactly; they depend on the weights, so one wrong number in one
    iteration would show in all later ones.
    """
    delay_streams(monkeypatch)
    iterations = 1000

    def gradient(iteration: int, rank: int, name: str, weights: torch.Tensor) -> torch.Tensor:
        return (weights * (rank + 2) + iteration * (rank + 1) + ord(name)) % 97

    def run(comm: Communicator) -> dict[str, torch.Tensor]:
        rank = Rank(comm, CGDP)
        weights = {name: torch.arange(float(p.numel())) for name, p in rank.parameters.items()}
        for iteration in range(iterations):
            for name, parameter in rank.parameters.items():
                parameter.grad = gradient(iteration, comm.rank, name, weights[name])
            rank.run()
            for name, parameter in rank.parameters.items():
                assert parameter.grad is not None
                weights[name] = (weights[name] - parameter.grad) % 1009
        return weights

    expected = {name: torch.arange(float(size)) for name, size in Rank.SIZES.items()}
    for iteration in range(iterations):
        for name, weights in expected.items():
            total = sum(gradient(iteration, rank, name, weights) for rank in range(3))
            expected[name] = (weights - total) % 1009
    for found in run_ranks(3, run, timeout=120, hosts=hosts):
        for name, weights in expected.items():
            assert torch.equal(found[name], weights), name
