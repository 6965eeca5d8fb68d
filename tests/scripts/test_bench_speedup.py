"""The terms of Hybrid's Eq. 13."""

from __future__ import annotations

import math

import pytest

from scripts.benches.speedup import Training, epochs_until, terms


def test_each_factor_by_hand() -> None:
    """Four ranks, four batches at once: a step takes a quarter more, an epoch a quarter of the steps, and one more."""
    found = terms(Training(step=0.4, steps=100, epochs=9), Training(step=0.5, steps=25, epochs=10))
    assert (found.step, found.steps, found.epochs) == pytest.approx((0.8, 4, 0.9))
    assert found.speedup == pytest.approx(2.88)


@pytest.mark.parametrize("many", [Training(0.1, 26.67, 5), Training(0.3, 6.7, 12), Training(2, 80, 1)])
def test_the_product_is_the_ratio_of_the_training_times(many: Training) -> None:
    one = Training(0.2, 26.67, 7)
    assert one.seconds == pytest.approx(0.2 * 26.67 * 7)
    assert terms(one, many).speedup == pytest.approx(one.seconds / many.seconds)


def test_one_against_itself() -> None:
    one = Training(0.2, 26.67, 7)
    assert terms(one, one).speedup == 1


def test_who_has_not_converged_has_no_speed_up() -> None:
    one, never = Training(0.4, 100, 9), Training(0.2, 100, None)
    for pair in ((one, never), (never, one), (never, never)):
        found = terms(*pair)
        assert math.isnan(found.epochs)
        assert math.isnan(found.speedup)
    assert terms(one, never).step == 2
    assert never.seconds == math.inf


def test_epochs_until() -> None:
    assert epochs_until([0.5, 0.9, 0.95, 0.94, 0.96], 0.95) == 3
    assert epochs_until([0.95], 0.95) == 1
    assert epochs_until([0.5, 0.9], 0.95) is None
    assert epochs_until([], 0.95) is None


def test_times_that_are_none() -> None:
    for wrong in ((0.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.0, 0)):
        with pytest.raises(AssertionError):
            Training(*wrong)
