"""All ranks take over the weights of one."""

from __future__ import annotations

from functools import partial

import pytest

from bpt.base.errors import UserError
from bpt.parallel.exchange import EXCHANGES, broadcast
from bpt.system.comm.base import Communicator
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank


@pytest.mark.parametrize("root", [0, 2])
def test_weights_of_the_root(root: int) -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, EXCHANGES["ALLREDUCE"])
        broadcast(list(rank.bucket_of.values()), partial(Communicator.Bcast, root=root))
        return rank.weights

    first = 100 * root
    assert run_ranks(3, run) == [{"a": [first] * 3, "b": [first + 1] * 2, "c": [first + 2] * 4}] * 3


def test_only_the_buckets_given() -> None:
    def run(comm: Communicator) -> object:
        rank = Rank(comm, EXCHANGES["ALLREDUCE"])
        broadcast([rank.bucket_of["c",]])
        return rank.weights

    assert run_ranks(2, run)[1] == {"a": [100] * 3, "b": [101] * 2, "c": [2] * 4}


def test_alone() -> None:
    def run(comm: Communicator) -> None:
        seen = Seen(comm)
        broadcast(list(Rank(comm, EXCHANGES["TREE"]).bucket_of.values()))
        assert seen.take() == {}

    run_ranks(1, run)


def test_unknown_ways_are_explained() -> None:
    with pytest.raises(UserError, match='unknown exchange "ALREDUCE"; did you mean "ALLREDUCE"'):
        EXCHANGES["ALREDUCE"]
