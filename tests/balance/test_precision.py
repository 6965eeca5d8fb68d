from __future__ import annotations

import math
import random

import pytest

from bpt.balance.precision import Estimate, estimate, estimate_runs, student


def test_trimmed_mean_by_hand() -> None:
    # 1 and 100 are left out: mean of 2 3 4. Winsorized 2 2 3 4 4: squares about 3 add up to 4. Its error by Yuen:
    # sqrt(4 / (3 · 2)) = 0.8165; Student's t for 2 degrees of freedom: 4.303.
    assert estimate([3, 100, 1, 4, 2]) == Estimate(3.0, pytest.approx(4.303 * math.sqrt(4 / 6)), 5)


def test_few_samples() -> None:
    assert estimate([2.0]) == Estimate(2.0, math.inf, 1)
    # Standard deviation sqrt(2), error 1, 12.706 for 1 degree of freedom.
    assert estimate([1.0, 3.0]) == Estimate(2.0, pytest.approx(12.706), 2)
    # The median; standard deviation of 1 2 9: sqrt(19); 4.303 for 2.
    assert estimate([9.0, 1.0, 2.0]) == Estimate(2.0, pytest.approx(4.303 * math.sqrt(19 / 3)), 3)


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
