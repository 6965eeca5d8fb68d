"""Eq. 7, 9 and 10 of BPT-CNN, with numbers worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.parallel.outer.update_factors import AgwuUpdate, Normalizer, gamma, recency, sgwu_factors
from tests.support.paper import attenuation


def test_sgwu_factors() -> None:
    assert sgwu_factors([0.5, 0.25, 0.25]) == (0.5, 0.25, 0.25)
    assert sgwu_factors([0.9, 0.6]) == pytest.approx((0.6, 0.4))
    assert sgwu_factors([0.0, 0.8]) == (0.0, 1.0)


def test_sgwu_factors_by_samples() -> None:
    """0.5 · 30 and 0.75 · 10 of 22.5; without accuracy by samples alone; who has neither does not count."""
    assert sgwu_factors([0.5, 0.75], [30, 10]) == pytest.approx((2 / 3, 1 / 3))
    assert sgwu_factors([0.0, 0.0], [30, 10]) == (0.75, 0.25)
    assert sgwu_factors([0.0, 0.5, 0.0], [30, 0, 10]) == (0.75, 0.0, 0.25)
    assert sgwu_factors([0.6, 0.4], [0, 0]) == (0.6, 0.4)


@pytest.mark.parametrize("accuracy", [0.0, 0.7, 1.0])
def test_equal_accuracies_give_the_plain_mean(accuracy: float) -> None:
    """Exactly. Eq. 7 divides by zero if all are 0."""
    assert sgwu_factors([accuracy] * 3) == (1 / 3, 1 / 3, 1 / 3)
    assert sgwu_factors([accuracy]) == (1.0,)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_sgwu_factors_sum_to_1(accuracies: list[float]) -> None:
    factors = sgwu_factors(accuracies)
    assert math.fsum(factors) == pytest.approx(1)
    assert min(factors) >= 0


@pytest.mark.parametrize(
    ("base", "newest", "others", "by_others", "by_all"),
    [
        # e^0.5 / (e^1 + e^0.75) = 1.648721 / (2.718282 + 2.117000), and with 1.648721 below, too
        (2, 4, [4, 3], 0.340977, 0.254275),
        # e^1 / (e^1 + e^0.75 + e^0) = 2.718282 / 5.835282; / 8.553564
        (4, 4, [4, 3, 0], 0.465835, 0.317795),
        # two workers: e / 1, above 1; e / (1 + e)
        (1, 1, [0], 2.718282, 0.731059),
        # the other way round: 1 / e, and 1 / (1 + e)
        (0, 1, [1], 0.367879, 0.268941),
        # the first version: 0/0 counts as 0
        (0, 0, [0, 0], 1 / 2, 1 / 3),
        # one worker
        (0, 0, [], 1, 1),
        (7, 7, [], 1, 1),
        (5, 7, [], 1, 1),
    ],
)
def test_attenuation(base: int, newest: int, others: list[int], by_others: float, by_all: float) -> None:
    assert attenuation(base, newest, others) == pytest.approx(by_others, abs=1e-6)
    assert attenuation(base, newest, others, Normalizer.OTHERS) == attenuation(base, newest, others)
    assert attenuation(base, newest, others, Normalizer.ALL) == pytest.approx(by_all, abs=1e-6)


def test_old_bases_count_less() -> None:
    factors = [attenuation(base, 10, [9, 8, 2]) for base in range(11)]
    assert factors == sorted(set(factors))


def test_gamma_and_recency() -> None:
    assert (recency(0, 0), recency(0, 9), recency(9, 9)) == (1.0, 1.0, math.e)
    assert gamma(9, 9, 0.0, Normalizer.ALL) == 1.0
    assert gamma(9, 9, 2 * math.e, Normalizer.OTHERS) == 0.5
    assert gamma(9, 9, 3 * math.e, Normalizer.ALL) == 0.25


def test_update() -> None:
    """Eq. 10 with γ = 0.5, Q = 0.8."""
    update = AgwuUpdate(worker=3, base=2, newest=4, gamma=0.5, accuracy=0.8)
    assert (update.version, update.staleness, update.factor) == (5, 2, 0.4)


@pytest.mark.parametrize(
    ("update", "replaces"),
    [
        (AgwuUpdate(0, 4, 4, gamma=1.0, accuracy=1.0), True),
        (AgwuUpdate(0, 4, 4, gamma=1.0, accuracy=0.9), False),
        (AgwuUpdate(0, 3, 4, gamma=1.0, accuracy=1.0), False),  # W^(4) + W_0 - W^(3)
        (AgwuUpdate(0, 4, 4, gamma=0.5, accuracy=1.0), False),
    ],
)
def test_an_update_that_replaces_the_global_weights(update: AgwuUpdate, replaces: bool) -> None:
    assert update.replaces is replaces
