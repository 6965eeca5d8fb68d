"""What happens to all gradients together: the norm and the factor."""

from __future__ import annotations

import logging

import pytest
import torch

from bpt.engine.optim.gradients import gradient_scale, l2_norm
from tests.support.training import optim_of


def test_norm_is_exact_on_large_tensors() -> None:
    # 2²³ ones and 2²² twos: √(2²³ + 4 · 2²²) = √(3 · 2²³). One float32 sum of so many is off by percents.
    ones = torch.ones(2**23)
    twos = torch.full((2**10, 2**6, 8, 8), 2.0).contiguous(memory_format=torch.channels_last)
    assert l2_norm([ones, twos]) == pytest.approx((3 * 2**23) ** 0.5, rel=1e-6)


def test_norm_of_views() -> None:
    # Rows 0 and 2 of 1 … 12 in fours: 1 + 4 + 9 + 16 + 81 + 100 + 121 + 144 = 476.
    matrix = torch.arange(1.0, 13).view(3, 4)
    assert l2_norm([matrix[::2]]) == pytest.approx(476**0.5)


def test_no_clipping_by_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bpt"):
        assert gradient_scale(lambda: 2e9, optim_of("iter_size: 2")) == 0.5
    assert not caplog.records


def test_clipping_comes_before_division(caplog: pytest.LogCaptureFixture) -> None:
    # The norm of the sum, √(3² + 4²) = 5, is what is compared: 2 / 5, then / 4.
    gradients = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    with caplog.at_level(logging.INFO, "bpt"):
        scale = gradient_scale(lambda: l2_norm(gradients), optim_of("iter_size: 4 clip_gradients: 2"))
    assert scale == pytest.approx(0.1)
    assert caplog.messages == ["Gradient clipping: scaling down gradients (L2 norm 5 > 2) by scale factor 0.4"]
    assert gradient_scale(lambda: l2_norm(gradients), optim_of("clip_gradients: 5")) == 1


def test_nothing_to_clip() -> None:
    assert gradient_scale(lambda: l2_norm([]), optim_of("clip_gradients: 1")) == 1
