"""Sums of slices on the ranks that update them, and the weights that all ranks get from there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.weight_slices import WeightSlice, WeightSlices
from bpt.parallel.exchange import EXCHANGES, Bucket, Exchange
from bpt.parallel.exchange import buckets as messages
from bpt.parallel.sharded_update import slice_messages
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.comm.grid import places_by_host
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank

KINDS = ["ALLREDUCE", "RING", "CGDP"]
# The elements of "a" (3), "b" (2) and "c" (4) of each rank, where those of a host follow each other.
OWNERS = {"a": [0, 1, 2], "b": [0, 1], "c": [0, 0, 1, 2]}


def rank_of(comm: Communicator, kind: str, update: int = pb.ParallelParameter.SHARDED) -> Rank:
    def made(buckets: Sequence[Sequence[Bucket]], comm_thread: CommThread, device: torch.device) -> Exchange:
        own = [(b, p) for group in buckets for b in group for p in b.parameters if b.comm.size > 1]
        slices = WeightSlices(WeightSlice(p, b.comm.rank, places_by_host(b.comm)) for b, p in own)
        param = ParallelSpec(update=update)
        return EXCHANGES[f"sharded {kind}"](buckets, comm_thread, device, param, slices=slices)

    return Rank(comm, made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hosts", [None, ["a", "a", "b"], ["a", "b", "a"], ["a", "b", "c"]])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_each_slice_is_updated_once_and_everybody_gets_it(
    kind: str, hosts: list[str] | None, early: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank's weights are others here, so that they tell whose slices they were. Two iterations, with no gradient
    of "b" on the last rank; the sums of the second are twice the first's."""
    if large:  # a message for each parameter
        monkeypatch.setattr(messages, "LARGE", 1)
        monkeypatch.setattr(slice_messages, "LARGE", 1)
    update = pb.ParallelParameter.HOST if early else pb.ParallelParameter.SHARDED

    def run(comm: Communicator) -> dict[str, list[float]]:
        rank, done = rank_of(comm, kind, update), list[int]()
        place = places_by_host(comm)

        def subtract(values: Sequence[nn.Parameter], first: int, last: int | None) -> None:
            done.append(len(values))
            with torch.no_grad():
                for value in values:
                    if value.grad is not None:
                        value.sub_(value.grad)

        for factor in (1, 2):
            rank.give(a=1.0 * factor, b=10.0 * factor if comm.rank < 2 else None, c=0.5 * factor)
            assert rank.exchange.take_early(subtract) is None
            rank.run()
            assert sum(done) == 3 * early  # all parameters, before the update
            assert rank.gradients == {"a": None, "b": None, "c": None}
            if not early:
                subtract([each.value for each in rank.exchange.slices], 0, None)
            done.clear()
            rank.exchange.updated()
            for segment in range(2):
                rank.exchange.gather(segment)
        found = {
            name: [value - 100 * place.index(owner) for value, owner in zip(values, OWNERS[name], strict=True)]
            for name, values in rank.weights.items()
        }
        rank.exchange.close()
        return found

    expected = {"a": [0 - 9.0] * 3, "b": [1 - 60.0] * 2, "c": [2 - 4.5] * 4}  # 3 + 6, 20 + 40, 1.5 + 3
    assert run_ranks(3, run, hosts=hosts) == [expected] * 3


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Of two ranks each sends the half that the other one updates, and then its own: "a" is 2 and 1 floats, "b" and
        # "c" two halves.
        ("ALLREDUCE", {("X0 a … b", "Reduce_scatter"): (1, 8, 12), ("X1 c", "Reduce_scatter"): (1, 8, 8),
                       ("G0 a … b", "Allgatherv"): (1, 12, 8), ("G1 c", "Allgatherv"): (1, 8, 8)}),
        ("RING", {("X0 a … b", "Isend"): (1, 8, 0), ("X0 a … b", "Irecv"): (1, 0, 12), ("X1 c", "Isend"): (1, 8, 0),
                  ("X1 c", "Irecv"): (1, 0, 8), ("G0 a … b", "Isend"): (1, 12, 0), ("G0 a … b", "Irecv"): (1, 0, 8),
                  ("G1 c", "Isend"): (1, 8, 0), ("G1 c", "Irecv"): (1, 0, 8)}),
    ],
)  # fmt: skip
def test_the_two_halves_of_an_all_reduce_are_sent(
    kind: str, expected: dict[tuple[str, str], tuple[int, int, int]]
) -> None:
    def run(comm: Communicator) -> dict[tuple[str, str], tuple[int, int, int]]:
        rank = rank_of(comm, kind)
        seen = Seen(comm)
        rank.give(a=1, b=1, c=1)
        rank.run()
        rank.exchange.updated()
        rank.exchange.complete_weights()
        return {key: (t.calls, t.sent, t.received) for key, t in seen.calls().items()}

    assert run_ranks(2, run)[0] == expected


def test_the_whole_gradient_can_be_seen() -> None:
    def run(comm: Communicator) -> list[list[float]]:
        rank = rank_of(comm, "RING")
        rank.give(a=1.0 + comm.rank, b=None, c=2.0)
        rank.run()
        found = [rank.exchange.gradient(parameter) for parameter in rank.parameters.values()]
        return [each.tolist() for each in found if each is not None]

    assert run_ranks(3, run, hosts=["a", "b", "a"]) == [[[6, 6, 6], [0, 0], [6, 6, 6, 6]]] * 3
