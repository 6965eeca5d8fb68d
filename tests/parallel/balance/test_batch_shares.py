"""Shares of a batch, by UNIFORM and STATIC, and what the log says of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.base.errors import UserError
from bpt.graph.share import Share
from bpt.parallel.balance import Static, Uniform, imbalance
from bpt.parallel.balance.batch_shares import fastest, lines
from bpt.parallel.balance.speed import SpeedFunction


@pytest.mark.parametrize(
    ("total", "ranks", "counts"),
    [(8, 2, [4, 4]), (7, 2, [4, 3]), (7, 4, [2, 2, 2, 1]), (2, 4, [1, 1, 0, 0]), (5, 1, [5]), (0, 2, [0, 0])],
)
def test_shares_differ_by_at_most_one_and_tile_the_batch(total: int, ranks: int, counts: list[int]) -> None:
    shares = Uniform().shares(total, ranks)
    assert shares == tuple(Share(sum(counts[:rank]), counts[rank], total) for rank in range(ranks))


def linear(seconds: float, cap: int | None = None) -> SpeedFunction:
    """So many seconds a sample."""
    return SpeedFunction.fitted([(1, seconds)], cap)


def counts(functions: list[SpeedFunction], total: int) -> list[int]:
    return [share.count for share in Static(functions).shares(total, len(functions))]


@pytest.mark.parametrize(
    ("seconds", "total", "expected"),
    [
        ([1, 1], 8, [4, 4]),
        ([1, 1], 7, [4, 3]),  # as UNIFORM does
        ([1, 1, 1, 1], 6, [2, 2, 1, 1]),
        ([1, 3], 8, [6, 2]),
        ([1, 4], 64, [51, 13]),  # 51 and 52; with 52 and 12 it would be 52 and 48, no better
        ([1, 2, 4], 14, [8, 4, 2]),
        ([1, 100], 50, [50, 0]),  # one sample would take the second longer than all take the first
        ([2, 1], 0, [0, 0]),
    ],
)
def test_speeds_that_do_not_depend_on_the_size(seconds: list[float], total: int, expected: list[int]) -> None:
    assert counts([linear(second) for second in seconds], total) == expected


def test_speed_is_a_function_of_the_size() -> None:
    """A rank with a cost that every batch has: t = 6 + x, against t = 2 x. Equal at x = 10, 8: 16 seconds."""
    fixed = SpeedFunction.fitted([(1, 7.0), (100, 106.0)])
    proportional = linear(2)
    assert counts([fixed, proportional], 18) == [10, 8]
    assert Static([fixed, proportional]).predicted_seconds((Share(0, 10, 18), Share(10, 8, 18))) == (16.0, 16.0)
    # Of 3 samples it gets none: alone with them the other takes 6, less than 7.
    assert counts([fixed, proportional], 3) == [0, 3]


def test_a_rank_whose_time_is_level_gets_what_costs_it_nothing() -> None:
    """The first takes 1 s for up to 64 samples, and 1/64 s for each more."""
    assert counts([SpeedFunction.fitted([(1, 1.0), (64, 1.0)]), linear(0.5)], 65) == [63, 2]
    assert counts([SpeedFunction.fitted([(1, 1.0), (64, 1.0)])] * 2, 64) == [32, 32]


def test_shares_tile_the_batch_and_stay_the_same() -> None:
    balance = Static([linear(1), linear(3)])
    shares = balance.shares(8, 2)
    assert shares == (Share(0, 6, 8), Share(6, 2, 8))
    assert balance.shares(8, 2) is shares


@pytest.mark.parametrize(
    ("caps", "total", "expected"),
    [([4, None], 12, [4, 8]), ([2, 3], 5, [2, 3]), ([0, None], 3, [0, 3]), ([100, 100], 12, [9, 3])],
)
def test_caps(caps: list[int | None], total: int, expected: list[int]) -> None:
    """Times 1 and 3 a sample: 9 and 3 of 12 without caps."""
    assert counts([linear(second, cap) for second, cap in zip((1, 3), caps, strict=True)], total) == expected


def test_a_batch_that_does_not_fit() -> None:
    with pytest.raises(UserError) as caught:
        counts([linear(1, 512), linear(3, 256)], 1024)
    assert str(caught.value) == (
        "balance: STATIC: a batch of 1024 samples does not fit into memory: rank 0: 512, rank 1: 256, together 768 "
        "samples, 256 too few; use a smaller batch_size or more ranks, or measure the profile again if more memory "
        "is free now"
    )


def test_of_many_ranks_the_message_names_some() -> None:
    with pytest.raises(UserError, match=r"rank 7: 1 and 3 more ranks, together 11 samples, 1 too few"):
        counts([linear(1, 1)] * 11, 12)


def partitions(total: int, ranks: int) -> Iterator[tuple[int, ...]]:
    """All ways to write ``total`` as a sum of ``ranks`` whole numbers."""
    return (parts for parts in itertools.product(range(total + 1), repeat=ranks) if sum(parts) == total)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[SpeedFunction], int]:
    total = draw(st.integers(0, 9))
    functions = []
    for _ in range(draw(st.integers(1, 4))):
        steps = draw(st.lists(st.integers(0, 5), min_size=10, max_size=10))
        times = itertools.accumulate([1, *steps[1:]])
        cap = draw(st.none() | st.integers(0, 9))
        functions.append(SpeedFunction(tuple(range(11)), (0.0, *map(float, times)), cap))
    return functions, total


@settings(max_examples=200, deadline=None, derandomize=True)
@given(problems())
def test_against_all_partitions(problem: tuple[list[SpeedFunction], int]) -> None:
    functions, total = problem
    feasible = [
        parts
        for parts in partitions(total, len(functions))
        if all(f.cap is None or part <= f.cap for part, f in zip(parts, functions, strict=True))
    ]
    if not feasible:
        with pytest.raises(UserError, match="does not fit"):
            fastest(functions, total)
        return

    def slowest(parts: tuple[int, ...]) -> float:
        return max(f.times[part] for part, f in zip(parts, functions, strict=True))

    found = tuple(fastest(functions, total))
    assert found in feasible
    assert slowest(found) == min(map(slowest, feasible))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 200))
def test_all_finish_together_up_to_one_sample(seconds: list[int], total: int) -> None:
    functions = [linear(second) for second in seconds]
    found = fastest(functions, total)
    assert sum(found) == total
    last = max(f.seconds(count) for f, count in zip(functions, found, strict=True))
    assert all(f.seconds(count + 1) >= last for f, count in zip(functions, found, strict=True))


def test_imbalance() -> None:
    assert imbalance([3.0, 1.0, 2.0]) == 0.5  # 3 / 2 - 1
    assert imbalance([2.0, 2.0]) == 0
    assert imbalance([0.0, 0.0]) == 0


def test_extrapolated_times_are_told() -> None:
    balance = Static([SpeedFunction.fitted([(1, 1.0), (4, 4.0)]), SpeedFunction.fitted([(1, 1.0), (8, 8.0)])])
    assert balance.remarks(balance.shares(8, 2)) == []
    assert balance.remarks(balance.shares(10, 2)) == [
        "rank 0: 5 samples are more than the 4 that were measured; their time is an extrapolation"
    ]


def test_a_test_has_no_limits_of_memory() -> None:
    free = Static([linear(1, 2), linear(3, 2)], ["rank 4 (host x)", "rank 5 (host y)"]).without_caps()
    assert [share.count for share in free.shares(8, 2)] == [6, 2]
    assert free.names == ("rank 4 (host x)", "rank 5 (host y)")


SHARES = (Share(0, 48, 64), Share(48, 16, 64))


def test_predicted() -> None:
    # The mean is 0.011; 0.012 / 0.011 = 1.0909.
    assert lines(SHARES, [0.012, 0.010]) == [
        "Balance: rank 0 trains 48 of 64 samples, predicted 12 ms",
        "Balance: rank 1 trains 16 of 64 samples, predicted 10 ms",
        "Balance: imbalance predicted 9.1% (slowest rank over the mean)",
    ]


def test_predicted_and_seen() -> None:
    assert lines(SHARES, [0.011, 0.011], [0.01234567, 0.01]) == [
        "Balance: rank 0 trains 48 of 64 samples, predicted 11 ms, seen 12.35 ms",
        "Balance: rank 1 trains 16 of 64 samples, predicted 11 ms, seen 10 ms",
        "Balance: imbalance predicted 0.0%, seen 10.5% (slowest rank over the mean)",
    ]


def test_without_a_profile() -> None:
    assert lines(SHARES) == ["Balance: rank 0 trains 48 of 64 samples", "Balance: rank 1 trains 16 of 64 samples"]
    assert lines(SHARES, None, [1.0, 3.0])[2] == "Balance: imbalance seen 50.0% (slowest rank over the mean)"
