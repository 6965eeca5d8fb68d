"""Allocations, and the equations of IDPA."""

from __future__ import annotations

import itertools
from random import Random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.data.sample_partition import Allocation, as_printed, by_frequency, deal, empty_allocation, harmonic, size


def test_runs_are_dealt_out_in_order() -> None:
    assert deal([(0, 10)], [3, 0, 7]).runs == (((0, 3),), (), ((3, 10),))
    # 8 samples in three runs, cut after 3 and after 4.
    assert deal([(0, 2), (10, 15), (20, 21)], [3, 1, 4]).runs == (((0, 2), (10, 11)), ((11, 12),), ((12, 15), (20, 21)))
    assert deal([], [0, 0]) == empty_allocation(2)


@pytest.mark.parametrize("counts", [[3], [3, 0], [4, 5]])
def test_every_sample_is_dealt_out(counts: list[int]) -> None:
    with pytest.raises(AssertionError, match="more samples than counts"):
        deal([(0, 4), (5, 20)], counts)


def test_counts() -> None:
    assert size([(0, 2), (10, 15)]) == 7
    assert Allocation((((0, 2), (10, 15)), (), ((2, 3),))).counts == (7, 0, 1)


def test_what_comes_along_is_appended_and_neighbours_are_joined() -> None:
    first = Allocation((((0, 3),), ((3, 4),), ()))
    more = Allocation((((4, 6), (9, 10)), ((6, 7),), ((7, 9),)))
    assert first.plus(more).runs == (((0, 3), (4, 6), (9, 10)), ((3, 4), (6, 7)), ((7, 9),))
    assert Allocation((((0, 3),),)).plus(Allocation((((3, 5), (8, 9)),))).runs == (((0, 5), (8, 9)),)
    assert first.plus(empty_allocation(3)) == empty_allocation(3).plus(first) == first


def test_without() -> None:
    assert Allocation((((0, 3),), ((3, 4),), ((4, 5),))).without([0, 2]).runs == ((), ((3, 4),), ())


@pytest.mark.parametrize(
    ("total", "have", "times", "expected"),
    [
        (14, [0, 0, 0], [1, 2, 4], [8, 4, 2]),  # T = 14 / (1 + 1/2 + 1/4) = 8
        (28, [8, 4, 2], [1, 2, 4], [16, 8, 4]),  # the same once more
        (28, [8, 4, 2], [2, 1, 4], [8, 16, 4]),  # the first two changed places: T = 16
        (21, [8, 4, 2], [1, 8, 4], [14, 4, 3]),  # T = 21 / (1 + 1/8 + 1/4) = 15.27 < 8 · 4; without it 17 / 1.25 = 13.6
        (10, [0, 0, 0], [1, 1, 1], [4, 3, 3]),  # 3.33: the lower node gets the sample that is left
        (4, [0, 0], [2, 3], [2, 2]),  # 2.4 and 1.6
        (100, [0, 0], [1, 1000], [100, 0]),  # 99.9 and 0.1
        (5, [3, 0], [4, 1], [3, 2]),  # 1 and 4 would be even, but the first keeps its 3
        (5, [3, 2], [4, 1], [3, 2]),  # nothing new
        (7, [0], [5], [7]),
        (0, [0, 0], [1, 2], [0, 0]),
    ],
)
def test_harmonic(total: int, have: list[int], times: list[float], expected: list[int]) -> None:
    assert harmonic(total, have, times) == expected


def test_one_after_the_other_falls_out() -> None:
    """T = 41 / (1 + 1 + 1/10 + 1/10) = 18.6 < 30; without that node 38 / 2.1 = 18.1 < 20, without both 36 / 2 = 18."""
    assert harmonic(41, [10, 6, 3, 2], [1, 1, 10, 10]) == [18, 18, 3, 2]


def test_times_of_very_unlike_nodes() -> None:
    """The slow ones are not lost beside a node that is 10^18 times as fast but has more than its part already."""
    assert harmonic(40, [30, 0, 0], [1.0, 1e-3, 1e-3]) == [30, 5, 5]
    assert harmonic(40, [0, 0, 0], [1e-300, 1.0, 1e300]) == [40, 0, 0]
    assert harmonic(10**9, [0, 0], [1e-9, 1e-9]) == [5 * 10**8, 5 * 10**8]


def test_as_printed_equals_harmonic_if_nodes_are_alike() -> None:
    """T = 12 · 2 / 3 = 8: 4 each."""
    assert as_printed(12, [0, 0, 0], [2, 2, 2]) == [4, 4, 4]
    assert as_printed(24, [4, 4, 4], [2, 2, 2]) == [8, 8, 8]
    assert as_printed(10, [0, 0, 0], [2, 2, 2]) == [3, 3, 4]  # T = 20 / 3: ⌊3.33⌋ twice


@pytest.mark.parametrize(
    ("total", "have", "times", "expected"),
    [
        # t̄ = 3, T = 12 · 3 / 2 = 18: n' = 9 and 3.6.
        (12, [0, 0], [2, 4], [9, 3]),
        # t̄ = 7/3, T = 18 · 7 / 9 = 14: n' = 14, 7 and 3.5, together 24.5 of 18. The last would get 18 - 21 < 0.
        (18, [0, 0, 0], [1, 2, 4], [14, 4, 0]),
        # The same behind a batch of 9: Eq. 5 gives 14 - 3 = 11 of 9 new samples to the first alone.
        (18, [3, 3, 3], [1, 2, 4], [12, 3, 3]),
        # What a node has beyond n' stays with it: n' = 9 - 10.
        (18, [10, 2], [2, 2], [10, 8]),
    ],
)
def test_as_printed(total: int, have: list[int], times: list[float], expected: list[int]) -> None:
    assert as_printed(total, have, times) == expected


def test_by_frequency() -> None:
    """Alg. 3.1, lines 1 to 4: 10 · 2 / 6.5 = 3.08, 10 · 3 / 6.5 = 4.6, and what is left."""
    assert by_frequency(10, [0, 0, 0], [2.0, 3.0, 1.5]) == [3, 4, 3]
    assert by_frequency(10, [0], [2.0]) == [10]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, list[int], list[float]]:
    nodes = draw(st.integers(1, 12))
    have = draw(st.lists(st.integers(0, 500), min_size=nodes, max_size=nodes))
    times = draw(st.lists(st.floats(1e-6, 1e3), min_size=nodes, max_size=nodes))
    return sum(have) + draw(st.integers(0, 5000)), have, times


def check_harmonic(total: int, have: list[int], times: list[float]) -> None:
    """All is handed out, nothing taken away, and who got something now finishes no later than anybody else.

    Up to one sample of the slower one.
    """
    totals = harmonic(total, have, times)
    assert sum(totals) == total
    assert all(after >= before for before, after in zip(have, totals, strict=True))
    finish = [count * time for count, time in zip(totals, times, strict=True)]
    for i, j in itertools.permutations(range(len(have)), 2):
        if totals[i] > have[i]:
            assert finish[i] - finish[j] <= max(times[i], times[j]) + 1e-9 * max(finish)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(clusters())
def test_nobody_who_gets_something_finishes_after_the_others(cluster: tuple[int, list[int], list[float]]) -> None:
    check_harmonic(*cluster)


def test_thousands_of_clusters() -> None:
    for seed in range(3000):
        random = Random(seed)
        times = [10 ** random.uniform(-3, 2) for _ in range(random.randint(1, 12))]
        have = [random.choice([0, random.randint(0, 2000)]) for _ in times]
        check_harmonic(sum(have) + random.randint(0, 5000), have, times)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(clusters())
def test_as_printed_never_takes_away_and_asks_for_too_much(cluster: tuple[int, list[int], list[float]]) -> None:
    total, have, times = cluster
    totals = as_printed(total, have, times)
    assert sum(totals) == total
    assert all(after >= before for before, after in zip(have, totals, strict=True))
    # The reason: Σ n'_j ≥ ⌊N/A⌋ · a, for the arithmetic mean is not below the harmonic one.
    finish = total * fmean(times) / len(times)
    assert sum(finish / time for time in times) >= total * (1 - 1e-9)
