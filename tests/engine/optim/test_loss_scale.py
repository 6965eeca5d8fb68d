"""The loss scale by itself; expected by hand."""

from __future__ import annotations

import math

import pytest
import torch

from bpt.engine.optim import loss_scale
from bpt.engine.optim.loss_scale import LossScale


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "GROWS_AFTER", 3)


def train(scale: LossScale, *gradients: float) -> list[tuple[bool, float]]:
    """Of each iteration, with one gradient of this size times the scale: whether it counts, and the next scale."""
    found = []
    for iteration, size in enumerate(gradients):
        gradient = torch.full((2, 3), size) * scale.begin(iteration)
        finite = scale.divide([gradient], iteration)
        assert not finite or gradient.eq(size).all()
        found.append((finite, scale.value))
    return found


def test_a_constant_scale_stays() -> None:
    scale = LossScale(1000.0)
    assert train(scale, 0.3, math.inf, 0.1) == [(True, 512.0)] * 3  # the power of two below
    assert scale.state() is None


def test_a_dynamic_scale_is_halved_and_doubled() -> None:
    scale = LossScale(8.0, dynamic=True)
    found = train(scale, 0.3, math.inf, 1.0, 0.1, 0.0, 3e38, math.nan, 1.0)
    assert found == [
        (True, 8.0),
        (False, 4.0),
        (True, 4.0),
        (True, 4.0),
        (True, 8.0),  # the third
        (False, 4.0),  # 8 times as much is infinite in single precision
        (False, 2.0),
        (True, 2.0),
    ]


def test_it_goes_on_from_its_state() -> None:
    scale, other = (LossScale(8.0, dynamic=True) for _ in range(2))
    train(scale, math.inf, 0.1, 0.1)
    assert scale.state() == (4.0, 2)
    other.load(scale.state())
    assert train(other, 0.1) == [(True, 8.0)]
    other.load(None)
    assert other.state() == (8.0, 0)


def test_it_is_not_halved_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    scale = LossScale(2.0**-13, dynamic=True)
    assert train(scale, math.nan, math.nan, math.nan) == [(False, 2.0**-14)] * 3
    assert "has the loss diverged?" in caplog.messages[-1]


def test_a_rank_without_gradients_agrees_with_the_others() -> None:
    told: list[bool] = []

    def agree(own: bool) -> bool:
        told.append(own)
        return True

    scale = LossScale(8.0, dynamic=True, agree=agree)
    scale.begin(0)
    assert not scale.divide([], 0) and told == [False]
    assert scale.value == 4.0


def test_what_comes_late_is_divided_by_the_scale_of_its_time() -> None:
    """Stage 0 of 2: gradients come an iteration later, and what became of them is known two iterations after that."""
    scale = LossScale(8.0, dynamic=True, lag=3)
    first, second = torch.tensor([8.0]), torch.tensor([math.inf])
    assert scale.begin(0) == 8.0
    scale.learn(True)
    assert scale.begin(1) == 8.0
    assert scale.divide([first], 0) and first.item() == 1.0
    scale.learn(False)
    assert scale.begin(2) == 4.0
    assert not scale.divide([second], 1)
    for iteration in (3, 4, 5):
        scale.learn(False)  # of scale 8
        assert scale.begin(iteration) == 4.0
    scale.learn(False)
    assert scale.begin(6) == 2.0
