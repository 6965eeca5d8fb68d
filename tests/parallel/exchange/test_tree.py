"""TREE: one rank has the sum of the gradients and updates; the others take its weights over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from bpt.config.plan.run_plan import ParallelSpec, TreeSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.exchange import EXCHANGES, Exchange
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Traffic
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank

TREE = EXCHANGES["TREE"]
LIBRARY = partial(TREE, param=ParallelSpec(tree_param=TreeSpec(pb.TreeParameter.LIBRARY)))
each_way = pytest.mark.parametrize("kind", [TREE, LIBRARY], ids=["pairwise", "library"])


@each_way
def test_the_first_rank_has_the_sum_and_the_others_nothing(kind: Callable[..., Exchange]) -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, kind)
        rank.give(a=1.0 + comm.rank, b=10.0 * comm.rank, c=0.5 if comm.rank else None)
        rank.run()
        return rank.gradients

    first, *others = run_ranks(3, run)
    assert first == {"a": [6, 6, 6], "b": [30, 30], "c": [1] * 4}
    assert others == [{"a": None, "b": None, "c": None}] * 2


def test_the_others_have_all_parameters_frozen() -> None:
    def run(comm: Communicator) -> bool:
        rank = Rank(comm, TREE)
        assert rank.exchange.broadcasts
        frozen = rank.exchange.frozen()
        assert frozen in (set(), {id(parameter) for parameter in rank.parameters.values()})
        assert [rank.exchange.updates(bucket) for bucket in rank.bucket_of.values()] == [not frozen] * 2
        return bool(frozen)

    assert run_ranks(3, run) == [False, True, True]


@each_way
def test_weights_are_those_of_the_rank_that_updates(kind: Callable[..., Exchange]) -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, kind)
        rank.exchange.broadcast()
        return rank.weights

    assert run_ranks(3, run) == [{"a": [0, 0, 0], "b": [1, 1], "c": [2] * 4}] * 3


def seen_in_an_iteration(comm: Communicator, kind: Callable[..., Exchange]) -> dict[tuple[str, str], Traffic]:
    """Bytes by label and method; nothing goes before all gradients are there."""
    rank = Rank(comm, kind)
    seen = Seen(comm)
    rank.exchange.start(1)
    rank.exchange.start(0)
    assert seen.take() == {}
    rank.exchange.wait()
    rank.exchange.broadcast()
    return seen.calls()


def test_nothing_goes_before_all_gradients_are_there() -> None:
    def run(comm: Communicator) -> dict[str, int]:
        sent = seen_in_an_iteration(comm, LIBRARY)
        assert {key: t.calls for key, t in sent.items()} == {
            ("X1 c", "Reduce"): 1, ("X0 a … b", "Reduce"): 1, ("C a … b", "Bcast"): 1, ("C c", "Bcast"): 1,
        }  # fmt: skip
        return {label: t.sent for (label, _), t in sent.items()}

    first, second, third = run_ranks(3, run)
    # Reduce: each sends its floats to the first; Bcast: the first sends to two others.
    assert first == {"X1 c": 0, "X0 a … b": 0, "C a … b": 2 * 20, "C c": 2 * 16}
    assert second == third == {"X1 c": 16, "X0 a … b": 20, "C a … b": 0, "C c": 0}


def test_messages_go_from_pair_to_pair() -> None:
    """Of 4 ranks, 1 and 3 send to 0 and 2, then 2 to 0; weights go the other way."""

    def run(comm: Communicator) -> dict[str, tuple[int, int]]:
        calls = seen_in_an_iteration(comm, TREE)
        assert {method for _, method in calls} == {"Isend", "Irecv"}
        totals: dict[str, tuple[int, int]] = {}
        for (label, _), traffic in calls.items():
            sent, received = totals.get(label, (0, 0))
            totals[label] = sent + traffic.sent, received + traffic.received
        return totals

    first, second, third, fourth = run_ranks(4, run)
    assert first == {"X1 c": (0, 32), "X0 a … b": (0, 40), "C a … b": (40, 0), "C c": (32, 0)}
    assert second == fourth == {"X1 c": (16, 0), "X0 a … b": (20, 0), "C a … b": (0, 20), "C c": (0, 16)}
    assert third == {"X1 c": (16, 16), "X0 a … b": (20, 20), "C a … b": (20, 20), "C c": (16, 16)}


def test_a_rank_that_is_alone_keeps_its_gradients() -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, TREE)
        rank.give(a=1, b=None, c=3)
        seen = Seen(comm)
        rank.run()
        rank.exchange.broadcast()
        assert rank.exchange.frozen() == set()
        assert seen.take() == {}
        return rank.gradients

    assert run_ranks(1, run) == [{"a": [1, 1, 1], "b": None, "c": [3] * 4}]
