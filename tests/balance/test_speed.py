from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.balance.speed import SpeedFunction, pooled


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
