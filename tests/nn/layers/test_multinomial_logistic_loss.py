from __future__ import annotations

import math

import pytest
import torch

from bpt.base.errors import DataError
from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer

LOSS = 'type: "MultinomialLogisticLoss"'


def test_by_hand() -> None:
    p = torch.tensor([[0.5, 0.25], [0.125, 0.75]], requires_grad=True)
    loss = one_layer(LOSS, (2, 2), (2,))(p, torch.tensor([1.0, 0]))
    loss.backward()
    assert loss.item() == pytest.approx((math.log(4) + math.log(8)) / 2)
    assert p.grad is not None
    assert p.grad.tolist() == [[0, -4 / 2], [-8 / 2, 0]]


def test_a_probability_of_0_has_a_vast_gradient() -> None:
    p = torch.tensor([[0.0, 1], [1, 0]], requires_grad=True)
    loss = one_layer(LOSS, (2, 2), (2,))(p, torch.tensor([0.0, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-20) / 2)
    assert p.grad is not None
    assert p.grad[0, 0].item() == pytest.approx(-1e20 / 2)
    assert p.grad.flatten()[1:].tolist() == [0, -0.5, 0]


def test_gradients() -> None:
    check_gradients(LOSS, spaced((3, 5)) / 5 + 0.5, torch.tensor([4.0, 0, 2]), constant=(1,))


def test_later_axes_are_classes() -> None:
    p, labels = spaced((2, 3, 1, 2)).float() / 5 + 0.5, torch.tensor([5.0, 0])
    top = one_layer(LOSS, (2, 3, 1, 2), (2, 1, 1, 1))(p.contiguous(memory_format=torch.channels_last), labels)
    torch.testing.assert_close(top, one_layer(LOSS, (2, 6), (2,))(p.reshape(2, 6), labels))


def test_no_samples() -> None:
    assert one_layer(LOSS, (0, 3), (0,))(torch.zeros(0, 3), torch.zeros(0)).item() == 0


def test_exports_for_any_batch_size() -> None:
    layer = one_layer(LOSS, (3, 5), (3,))
    batch = ({0: torch.export.Dim.DYNAMIC},) * 2
    program = torch.export.export(layer, (torch.rand(3, 5), torch.ones(3)), dynamic_shapes=(batch,))
    larger = (torch.rand(7, 5) + 0.1, torch.full((7,), 4.0))
    torch.testing.assert_close(program.module()(*larger), layer(*larger))


def test_labels_that_are_no_classes() -> None:
    layer = one_layer(LOSS, (2, 3), (2,))
    message = 'layer "L": label -1 at position 0 of "x1" is outside \\[0, 3\\), the classes of "x0"'
    with pytest.raises(DataError, match=message):
        layer(torch.ones(2, 3), torch.tensor([-1.0, 2]))


def test_refusals() -> None:
    message = 'needs one label for each sample (axis 0): "p" (2, 3, 4, 4) and "y" (2, 4, 4)'
    check_refusal(f'bottom: "p" §bottom: "y" {LOSS}', message, p=(2, 3, 4, 4), y=(2, 4, 4))
