"""CGDP: streams, chunks and hosts; what it shares with ALLREDUCE is tested in ``test_everybody_updates.py``."""

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
