"""Speed functions, the precision of measurements, and memory by batch size."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.parallel.balance.speed import (
    MOST,
    Estimate,
    MemoryExtrapolation,
    SpeedFunction,
    estimate,
    estimate_runs,
    ladder,
    pooled,
    student,
)
from tests.support.near import near


def test_trimmed_mean_by_hand() -> None:
    # 1 and 100 are left out: mean of 2 3 4. Winsorized 2 2 3 4 4: squares about 3 add up to 4. Its error by Yuen:
    # sqrt(4 / (3 · 2)) = 0.8165; Student's t for 2 degrees of freedom: 4.303.
    assert estimate([3, 100, 1, 4, 2]) == Estimate(3.0, near(4.303 * math.sqrt(4 / 6)), 5)


def test_few_samples() -> None:
    assert estimate([2.0]) == Estimate(2.0, math.inf, 1)
    # Standard deviation sqrt(2), error 1, 12.706 for 1 degree of freedom.
    assert estimate([1.0, 3.0]) == Estimate(2.0, near(12.706), 2)
    # The median; standard deviation of 1 2 9: sqrt(19); 4.303 for 2.
    assert estimate([9.0, 1.0, 2.0]) == Estimate(2.0, near(4.303 * math.sqrt(19 / 3)), 3)


def test_equal_samples_are_known_exactly() -> None:
    assert estimate([0.5] * 7) == Estimate(0.5, 0.0, 7)
    assert estimate([0.5] * 7).relative == 0


def test_weights() -> None:
    """1 / half-width², which counts as 1 % of the time at least, and as all of it at most."""
    assert Estimate(2.0, 0.1, 8).weight == pytest.approx(100.0)
    assert Estimate(2.0, 0.001, 8).weight == Estimate(2.0, 0.0, 8).weight == pytest.approx(2500.0)
    assert Estimate(2.0, 3.0, 2).weight == Estimate(2.0, math.inf, 1).weight == 0.25


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (10, 2.228), (30, 2.042), (40, 2.021), (120, 1.980)]
)
def test_student(freedom: int, quantile: float) -> None:
    """From the printed tables."""
    assert student(freedom) == pytest.approx(quantile, rel=2e-3)


def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    """Of 2000 sets of 10 normal samples about 95 % have the true mean in their interval (± 1.5 %: 3 deviations)."""
    generator = random.Random(0)
    hits = 0
    for _ in range(2000):
        found = estimate([generator.gauss(5, 1) for _ in range(10)])
        hits += abs(found.seconds - 5) <= found.half_width
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


def test_runs_that_a_quota_stops_in_turn_are_taken_together() -> None:
    runs = [1.0, 3.0] * 10
    found = estimate_runs(runs)
    assert (found.seconds, found.half_width, found.repeats) == (2.0, 0.0, 20)
    assert estimate(runs).half_width > 0.5
    assert estimate_runs(runs[:9]) == estimate(runs[:9])  # too few to be taken together


def test_shown() -> None:
    assert str(Estimate(0.01234, 0.0001234, 5)) == "12.34 ms ± 1.0%"
    assert str(Estimate(0.5, math.inf, 1)) == "500 ms ± ?"


def test_straight_between_measured_sizes_and_through_0() -> None:
    function = SpeedFunction.fitted([(4, 2.0), (2, 1.5), (8, 3.0)])
    # 0 at 0; 1.5 at 2, 2 at 4, 3 at 8; beyond as from 4 to 8: 0.25 a sample.
    expected = {0: 0.0, 1: 0.75, 2: 1.5, 3: 1.75, 4: 2.0, 5: 2.25, 6: 2.5, 7: 2.75, 8: 3.0, 10: 3.5}
    assert {size: function.seconds(size) for size in expected} == expected
    assert [function.speed(size) for size in (1, 2, 4, 8)] == [1 / 0.75, 2 / 1.5, 2.0, 8 / 3]
    assert function.largest == 8
    assert function.cap is None


def test_one_point_is_a_constant_speed() -> None:
    function = SpeedFunction.fitted([(5, 2.0)], cap=7)
    assert [function.seconds(size) for size in (1, 5, 10)] == [0.4, 2.0, 4.0]
    assert function.cap == 7


def test_beyond_the_largest_size_noise_between_near_ones_does_not_count() -> None:
    """From 31 to 32 it is 0.1 s a sample, from 16 to 32 it is 14 / 16."""
    function = SpeedFunction.fitted([(16, 16.0), (31, 29.9), (32, 30.0)])
    assert function.seconds(48) == 30 + 14


def test_level_end_goes_on_with_the_mean_time_of_a_sample() -> None:
    function = SpeedFunction.fitted([(1, 1.0), (4, 3.0), (8, 3.0)])
    assert [function.seconds(size) for size in (4, 6, 8, 16)] == [3.0, 3.0, 3.0, 6.0]


def test_times_that_fall_are_pooled() -> None:
    # 3 and 1 violate: mean 2; 2.5 does not.
    function = SpeedFunction.fitted([(1, 0.5), (2, 3.0), (4, 1.0), (8, 2.5)])
    assert function.times == (0.0, 0.5, 2.0, 2.0, 2.5)


def test_what_is_known_badly_gives_way() -> None:
    # 3 and 1 violate: their mean, of which the 1 counts three times, is (3 + 3) / 4.
    function = SpeedFunction.fitted([(1, 0.5), (2, 3.0), (4, 1.0), (8, 2.5)], weights={1: 1, 2: 1, 4: 3, 8: 1})
    assert function.times == (0.0, 0.5, 1.5, 1.5, 2.5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([3, 2, 1], [2, 2, 2]),
        ([1, 4, 2, 3], [1, 3, 3, 3]),  # 4, 2 to 3, 3, which 3 does not violate
        ([5, 1, 3, 2], [2.75, 2.75, 2.75, 2.75]),  # 5, 1 to 3; 3, 3, 3, 2 all alike: 11 / 4
        ([], []),
    ],
)
def test_pooling_by_hand(values: list[float], expected: list[float]) -> None:
    assert pooled(values) == expected


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=12))
def test_pooling_is_the_min_max_formula(points: list[tuple[int, int]]) -> None:
    """Isotonic regression: the value at i is max over a <= i of min over b >= i of the weighted mean of a … b."""
    values, weights = map(list, zip(*points, strict=True))
    count = range(len(values))

    def mean(a: int, b: int) -> float:
        return float(np.average(values[a : b + 1], weights=weights[a : b + 1]))

    expected = [max(min(mean(a, b) for b in count if b >= i) for a in count if a <= i) for i in count]
    assert pooled(values, weights) == pytest.approx(expected)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.integers(1, 40), st.floats(1e-6, 1e3, allow_subnormal=False), min_size=1, max_size=8),
)
def test_never_falls(points: dict[int, float]) -> None:
    function = SpeedFunction.fitted(points.items())
    times = [function.seconds(size) for size in range(60)]
    assert times[0] == 0
    assert all(a <= b for a, b in itertools.pairwise(times))
    assert times[1] > 0


def test_before_two_sizes_have_been_seen_the_guess_counts() -> None:
    growth = MemoryExtrapolation(guess=100, least=10)
    assert (growth.largest, growth.per_sample) == (0, 100)
    growth.note(1, 5000)
    assert (growth.largest, growth.per_sample) == (1, 100)
    assert growth.cap(1000) == 1 + 8  # 0.8 · 1000 / 100


def test_the_steepest_growth_counts() -> None:
    growth = MemoryExtrapolation(guess=100, least=10)
    growth.note(1, 5000)
    growth.note(2, 5300)
    assert growth.per_sample == 300
    growth.note(4, 5500)
    assert growth.per_sample == pytest.approx(500 / 3)  # over all; the last step is 100
    growth.note(8, 7500)
    assert growth.per_sample == 500  # over the last step; over all it is 2500 / 7
    assert growth.cap(10_000) == 8 + 16


def test_growth_that_cannot_be_seen_is_at_least_that_of_a_blob() -> None:
    growth = MemoryExtrapolation(guess=100, least=10)
    growth.note(1, 5000)
    growth.note(2, 5000)
    assert growth.per_sample == 10
    assert growth.cap(1000) == 2 + 80
    assert growth.cap(-5) == 2  # what has run fits
    assert growth.cap(10**15) == MOST


def test_smaller_sizes_tell_nothing() -> None:
    growth = MemoryExtrapolation(guess=100, least=10)
    for size, peak in ((1, 1000), (8, 1700), (4, 9000), (8, 9000)):
        growth.note(size, peak)
    assert (growth.largest, growth.per_sample) == (8, 100)


@pytest.mark.parametrize(
    ("batch", "ranks", "sizes"),
    [
        (64, 2, [1, 2, 4, 8, 16, 32]),
        (100, 1, [1, 2, 4, 7, 13, 25, 50, 100]),
        (100, 3, [1, 2, 3, 5, 9, 17, 34]),
        (3, 8, [1]),
    ],
)
def test_from_one_to_the_even_share(batch: int, ranks: int, sizes: list[int]) -> None:
    assert ladder(batch, ranks) == sizes
