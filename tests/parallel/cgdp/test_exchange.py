"""CGDP: streams, chunks and hosts; what it shares with ALLREDUCE is tested in ``test_exchanges.py``."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

from bpt.parallel.cgdp import exchange, host_sum
from bpt.parallel.cgdp.host_sum import HostSum
from bpt.parallel.exchange import EXCHANGES, Bucket
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from tests.support.delays import delay_streams
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank
from tests.support.fake_cuda import pretended_cuda
from tests.support.marks import slow

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
    """A rank that has started the exchange of segment 1 does not wait there for others that have not."""
    started = threading.Event()

    def run(comm: Communicator) -> None:
        rank = Rank(comm, CGDP)
        rank.give(a=1, b=1, c=1)
        if comm.rank == 1:
            assert started.wait(60)
        rank.exchange.start(1)
        started.set()
        assert isinstance(rank.exchange, exchange.Cgdp)
        rank.exchange._ends["H2D"].wait()
        assert rank.gradients == {"a": [1, 1, 1], "b": [1, 1], "c": [2] * 4}  # before segment 0 is even started
        rank.exchange.start(0)
        rank.exchange.wait()
        assert rank.gradients == {"a": [2, 2, 2], "b": [2, 2], "c": [2] * 4}

    run_ranks(2, run)


def test_segments_can_be_cut_anew() -> None:
    def run(comm: Communicator) -> list[dict[str, list[float] | None]]:
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
        seen = Seen(comm)
        rank.run()
        return {key: (t.calls, t.sent) for key, t in seen.calls().items() if key[1] != "wait"}

    stages = {("D2H", 1), ("accumulate", 0), ("H2D", 1)}
    expected = {
        (f"X{segment} {name}", method): (1, counts * nbytes)
        for segment, name, nbytes in ((0, "a … b", 20), (1, "c", 16))
        for method, counts in stages
    }
    assert run_ranks(2, run) == [expected] * 2


def test_what_goes_wrong_in_a_stream_is_raised_by_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(HostSum):
        def accumulate(self, *arguments: object) -> None:
            raise ValueError("cannot add")

    monkeypatch.setattr(exchange, "HostSum", Broken)

    def run(comm: Communicator) -> None:
        Rank(comm, CGDP).run()

    with pytest.raises(ValueError, match="cannot add"):
        run_ranks(2, run)


@pytest.mark.parametrize("apart", [slow(False), True], ids=["", "streams apart"])
@pytest.mark.parametrize("hosts", [slow(None), ["a", "a", "b"]], ids=["one host", "two hosts"])
def test_delays_change_nothing(hosts: list[str] | None, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 iterations of 3 ranks, every stage of every stream delayed at random: always the numbers of one process.

    Gradients are whole numbers, and so are their sums, exactly; they depend on the weights, so one wrong number in one
    iteration would show in all later ones.
    """
    delay_streams(monkeypatch, apart)
    iterations = 300

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


def test_what_goes_wrong_between_hosts_is_raised_whichever_piece_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last piece is summed on each host by itself, and the one before it between hosts."""

    class Broken(HostSum):
        def reduce(self, *arguments: object) -> None:
            raise ValueError("the network failed")

    monkeypatch.setattr(exchange, "HostSum", Broken)

    def run(comm: Communicator) -> None:
        parameters = [nn.Parameter(torch.zeros(3)) for _ in range(2)]
        own = comm.Split(comm.rank % 2)  # the ranks of one host
        buckets = [[Bucket([("slice", parameters[0])], own)], [Bucket([("whole", parameters[1])], comm.Dup())]]
        summing = CGDP(buckets, CommThread(comm))
        summing.start(1)
        summing.start(0)
        summing.wait()

    with pytest.raises(ValueError, match="the network failed"):
        run_ranks(4, run, timeout=120, hosts=["a", "b", "a", "b"])


def test_messages_are_named_with_all_that_is_in_them() -> None:
    def run(comm: Communicator) -> object:
        return Rank(comm, CGDP).exchange.packed()

    assert run_ranks(2, run) == [{"a … b": {"a": 3, "b": 2}}] * 2


@pytest.mark.parametrize("failed", [False, True])
def test_memory_is_given_back_unless_somebody_may_still_use_it(failed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Watched(host_sum.HostSum):
        def close(self) -> None:
            window = self.window
            monkeypatch.setattr(window, "Free", lambda: done.append("Free"))
            super().close()

    def pin(memory: torch.Tensor, device: torch.device) -> Callable[[], None]:
        return lambda: done.append("unpin")

    monkeypatch.setattr(exchange, "HostSum", Watched)
    monkeypatch.setattr(host_sum, "pin", pin)

    def run(comm: Communicator) -> None:
        rank = Rank(comm, CGDP)
        rank.run()
        rank.exchange.close(failed)

    run_ranks(2, run)
    # Each rank has pinned its own area and the sums.
    assert sorted(done) == ([] if failed else ["Free"] * 2 + ["unpin"] * 4)


def test_the_device_makes_gradients_before_they_are_copied_and_has_the_sums_before_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order of calls on a pretended CUDA device, which is still busy when the exchange starts."""
    monkeypatch.setattr(host_sum, "pin", lambda memory, device: lambda: None)
    kernel = threading.Event()

    def run(comm: Communicator) -> object:
        rank = Rank(comm, CGDP, device=torch.device("cuda", 0))
        rank.give(a=1, b=1, c=1)
        if comm.rank == 0:
            cuda.launch(lambda: kernel.wait(60))
        comm.Barrier()
        rank.exchange.start(1)
        rank.exchange.start(0)
        comm.Barrier()
        kernel.set()
        rank.exchange.wait()
        return rank.gradients

    with pretended_cuda() as cuda:
        assert run_ranks(2, run) == [{"a": [2] * 3, "b": [2] * 2, "c": [2] * 4}] * 2
        calls = [call.split() for call in cuda.calls]
    recorded = {call[1]: call[3] for call in calls if call[0] == "record"}  # "record e0 on s1"
    waits = [(call[0], call[3]) for call in calls if call[1:3] == ["waits", "for"] and call[0] != "host"]
    d2h = {stream for stream, event in waits if recorded[event] == "default"}
    h2d = {recorded[event] for stream, event in waits if stream == "default"}
    assert len(d2h) == len(h2d) == 2  # one of each rank
    assert d2h.isdisjoint(h2d)
    for stream in d2h:  # for each segment it first waits for the gradients, and then marks the end of its copies
        assert [call[0] for call in calls if call[0] == stream or call[-1] == stream] == [stream, "record"] * 2
