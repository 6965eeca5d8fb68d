"""Standings: what ranks tell each other of where they are, and what that says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from bpt.system.events.flight_recorder import Position
from bpt.train.runtime.rank_status import RankStatusTable


@pytest.fixture
def clock() -> Iterator[list[float]]:
    """Its last element is the time."""
    shown = [0.0]
    with patch.object(time, "monotonic", lambda: shown[-1]):
        yield shown


def ranks(count: int, lanes: list[int] | None = None) -> list[RankStatusTable]:
    names = [f"rank {rank}" for rank in range(count)]
    return [RankStatusTable(names, range(count), own, lanes or [0] * count) for own in range(count)]


def at(number: int, words: str, seconds: float = 0.0, iteration: int = 5) -> Position:
    return Position(iteration, number, words, False, -1, seconds, 1.0, False)


def waiting(number: int, words: str, seconds: float, peer: int = -1, iteration: int = 5) -> Position:
    return Position(iteration, number, words, True, peer, seconds, 1.0, False)


def test_who_never_entered_what_others_wait_in(clock: list[float]) -> None:
    """As it goes by rank 1 to rank 2, and with the time that it took."""
    first, second, third = ranks(3)
    first.put(at(2, "F1 (conv2)", 8.0))
    second.put(waiting(4, "Allreduce, X2 (conv2)", 7.0))
    second.take(first.message(), 0)
    clock.append(2.0)
    third.put(waiting(4, "Allreduce, X2 (conv2)", 9.0))
    third.take(second.message(), 1)
    clock.append(3.0)
    assert list(third.lines()) == [
        "rank 0: at F1 (conv2) for 8 s; heard of 3 s ago",
        "rank 1: waiting in Allreduce, X2 (conv2) for 7 s; heard of 3 s ago",
        "rank 2: waiting in Allreduce, X2 (conv2) for 9 s",
        "",
        "rank 0 never entered Allreduce, X2 (conv2), where rank 2 waits: it is at F1 (conv2)",
    ]
    assert not third.all_wait(1.0)


def test_what_was_heard_before_the_others_waited_does_not_say_so(clock: list[float]) -> None:
    first, second = ranks(2)
    first.put(at(2, "F1 (conv2)", 0.1))
    second.take(first.message(), 0)
    clock.append(10.0)
    second.put(waiting(4, "Allreduce, X2 (conv2)", 9.0))
    assert second.findings() == [
        "rank 0 was not heard of since rank 1 waits in Allreduce, X2 (conv2): 10 s ago it was at F1 (conv2)"
    ]


def test_the_rank_that_was_silent_longest_comes_first(clock: list[float]) -> None:
    """Rank 0 was heard of 12 s ago, rank 1 20 s; rank 2 is late by one instruction, rank 3 by two."""
    tables = ranks(5)
    last = tables[4]
    for rank, number in ((1, 3), (0, 3), (2, 3), (3, 2)):
        tables[rank].put(at(number, f"F{rank}", 0.1))
        last.take(tables[rank].message(), rank)
        clock.append({1: 8.0, 0: 19.0, 2: 19.5, 3: 20.0}[rank])
    last.put(waiting(4, "Allreduce", 11.0))
    assert [found.split()[1:4] for found in last.findings()] == [
        ["1", "was", "not"],
        ["0", "was", "not"],
        ["3", "never", "entered"],
        ["2", "never", "entered"],
    ]


def test_a_rank_of_which_nothing_was_heard(clock: list[float]) -> None:
    _, second = ranks(2)
    second.put(waiting(4, "Allreduce", 9.0))
    assert next(second.lines()) == "rank 0: nothing was heard of it"
    assert second.findings() == ["rank 0 was not heard of since rank 1 waits in Allreduce: it never was"]


def test_stages_are_compared_with_their_own_only(clock: list[float]) -> None:
    """The first stage has begun fewer instructions than the second has, which says nothing."""
    first, second = ranks(2, lanes=[0, 1])
    first.put(at(2, "F0", 1.0))
    second.put(waiting(4, "Recv with rank 0, R1.0", 1.0, peer=0))
    second.take(first.message(), 0)
    assert second.findings() == ["rank 1 waits for rank 0 in Recv with rank 0, R1.0; that one is at F0"]


def test_two_that_wait_for_each_other(clock: list[float]) -> None:
    one, two, three = ranks(3)
    one.put(waiting(4, "Recv", 20.0, peer=2))
    two.put(waiting(4, "Recv", 20.0, peer=0))
    three.put(waiting(4, "Send", 20.0, peer=0))
    for rank, other in enumerate((one, two)):
        assert three.take(other.message(), rank)
    assert three.pair == (0, 2)
    assert three.all_wait(20.0)
    assert not three.all_wait(21.0)
    clock.append(11.0)  # who has not been heard of for long may have gone on
    three.put(waiting(4, "Send", 31.0, peer=0))
    assert not three.all_wait(20.0)


def test_who_is_gone_stays_so_and_is_not_waited_for(clock: list[float]) -> None:
    one, two, three = ranks(3)
    one.put(at(1, "F0"))
    two.leave(0)
    assert three.take(one.message(), 0)
    assert three.take(two.message(), 1)
    assert three.take(one.message(), 0)  # it has not said so itself
    assert three.is_gone(0)
    assert one.take(two.message(), 1)
    assert not one.is_gone(0)
    one.leave(0)
    assert not three.take(one.message(), 0)
    assert three.first == 1
    three.put(waiting(2, "X0", 5.0))
    two.put(waiting(2, "X0", 5.0))
    three.take(two.message(), 1)
    assert three.all_wait(5.0)


def test_a_peer_is_a_rank_of_the_job(clock: list[float]) -> None:
    """After a loss the places are others."""
    left = RankStatusTable(["rank 0", "rank 2"], [0, 2], 0, [0, 0])
    left.put(waiting(1, "Recv with rank 2", 1.0, peer=2))
    assert "rank 0 waits for rank 2 in Recv with rank 2; that one is at its start" in left.findings()


def test_all_have_come_to_the_same_and_nobody_gets_on(clock: list[float]) -> None:
    one, two = ranks(2)
    for each in (one, two):
        each.put(waiting(4, "Allreduce, X0", 30.0))
    two.take(one.message(), 0)
    found = "rank 0, rank 1 all wait in Allreduce, X0: no message gets through between some of them"
    assert two.findings() == [found]


def test_who_has_ended_has_told_what_there_was_to_tell() -> None:
    """At the end ranks leave one by one: the next one would tell of a lost spare once more (seen on a busy machine)."""
    _, second, _ = ranks(3)
    second.leave(0)
    assert (second.first, second.first_not_lost) == (1, 0)
    second.leave(0, lost=True)
    assert (second.first, second.first_not_lost) == (1, 1)
