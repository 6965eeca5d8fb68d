"""The first convolution for the input that a record describes: exact, at the borders, too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from bpt.apps.convert.from_torchvision.input_scaling import HALF, IMAGENET, InputScaling
from tests.support.torchvision_nets import normalised


def test_mean_values_are_those_of_blue_green_and_red() -> None:
    record = IMAGENET.record(232)
    assert record.transform_param.mean_value == pytest.approx([103.53, 116.28, 123.675])
    assert (record.channels, record.transform_param.crop_size) == (3, 224)
    assert record.transform_param.resize_param.height == 232
    assert HALF.record(256).transform_param.scale == pytest.approx(1 / 127.5)


def test_weights_change_by_less_than_three_percent() -> None:
    """By hand: 1 / (255 · 0.229 · 0.0175) = 0.97856 for red, 1.00040 for green, 0.99595 for blue."""
    adapted = IMAGENET.adapt(np.ones((1, 3, 1, 1), np.float32)).ravel()
    assert adapted == pytest.approx([0.99595, 1.00040, 0.97856], abs=1e-5)


@pytest.mark.parametrize(("scaling", "half"), [(IMAGENET, False), (HALF, True)])
def test_a_padded_convolution_gives_the_same_numbers(scaling: InputScaling, half: bool) -> None:
    """Every place of the top depends on the border here: the kernel is larger than the image."""
    torch.manual_seed(0)
    weights = torch.randn(5, 3, 7, 7)
    image = torch.randint(0, 256, (1, 3, 6, 6)).float()
    red_first = image / 127.5 - 1 if half else normalised(image)
    expected = functional.conv2d(red_first.double(), weights.double(), padding=3)
    mean = torch.tensor(scaling.mean_values).view(3, 1, 1)
    recorded = (image.flip(1) - mean) * scaling.scale
    adapted = torch.from_numpy(scaling.adapt(weights.numpy()))
    found = functional.conv2d(recorded.double(), adapted.double(), padding=3)
    assert torch.allclose(found, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
