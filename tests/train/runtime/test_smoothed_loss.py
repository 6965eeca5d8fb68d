"""The loss that is shown: means worked by hand."""

from __future__ import annotations

import logging

import pytest

from bpt.train.runtime.smoothed_loss import SmoothedLoss


def test_mean_of_the_last_few() -> None:
    losses = SmoothedLoss(average_loss=3)
    shown = []
    for iteration, loss in enumerate([3.0, 1.0, 2.0, 6.0]):
        losses.add(iteration, loss)
        shown.append(losses.value)
    assert shown == [3.0, 2.0, 2.0, 3.0]  # 3/1, (3+1)/2, (3+1+2)/3, (1+2+6)/3


def test_history_continues_the_mean() -> None:
    losses = SmoothedLoss(3)
    losses.load((1.0, 2.0))
    losses.add(2, 6.0)
    assert losses.value == 3.0
    assert losses.history == (1.0, 2.0, 6.0)


def test_a_loss_that_is_not_finite_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    losses = SmoothedLoss(1)
    with caplog.at_level(logging.WARNING, "bpt"):
        for iteration, loss in enumerate([1.0, float("nan"), float("inf")]):
            losses.add(iteration, loss)
    assert [record.message for record in caplog.records] == [
        "Iteration 1: loss = nan is not finite; training continues, but its result is useless. "
        "A smaller base_lr or clip_gradients often helps."
    ]
