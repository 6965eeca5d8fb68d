from __future__ import annotations

import pytest
import torch

from bpt.base.errors import DataError
from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer

HINGE = 'type: "HingeLoss"'
L2 = f"{HINGE} hinge_loss_param {{ norm: L2 }}"


@pytest.mark.parametrize(("body", "expected"), [(HINGE, 2 + 0.5 + 0.25), (L2, 4 + 0.25 + 0.0625)])
def test_by_hand(body: str, expected: float) -> None:
    # Sample 0 is of class 1: its score -1 lacks 2 to the margin, the other one, -0.5, lacks 1/2.
    # Sample 1 is of class 0: 3 keeps the margin, -0.75 lacks 1/4.
    scores = torch.tensor([[-0.5, -1], [3, -0.75]])
    assert one_layer(body, (2, 2), (2,))(scores, torch.tensor([1.0, 0])).item() == expected / 2


@pytest.mark.parametrize(("body", "expected"), [(HINGE, [1, -1, 0]), (L2, [1, -4, 0])])
def test_gradient_by_hand(body: str, expected: list[float]) -> None:
    # Class 1 lacks 2, class 0 lacks 1/2, and class 2 keeps the margin exactly: its gradient is 0, as in Caffe.
    scores = torch.tensor([[-0.5, -1, -1]], requires_grad=True)
    one_layer(body, (1, 3), (1, 1))(scores, torch.tensor([[1.0]])).backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [expected]


@pytest.mark.parametrize("body", [HINGE, L2])
def test_gradients(body: str) -> None:
    check_gradients(body, spaced((3, 5)), torch.tensor([4.0, 0, 2]), constant=(1,))


@pytest.mark.parametrize("body", [HINGE, L2])
def test_later_axes_are_classes(body: str) -> None:
    x, labels = spaced((2, 3, 1, 2)).float(), torch.tensor([5.0, 0])
    top = one_layer(body, (2, 3, 1, 2), (2, 1, 1, 1))(x.contiguous(memory_format=torch.channels_last), labels)
    torch.testing.assert_close(top, one_layer(body, (2, 6), (2,))(x.reshape(2, 6), labels))


def test_no_samples() -> None:
    assert one_layer(HINGE, (0, 3), (0,))(torch.zeros(0, 3), torch.zeros(0)).item() == 0


def test_exports_for_any_batch_size() -> None:
    layer = one_layer(HINGE, (3, 5), (3,))
    batch = ({0: torch.export.Dim.DYNAMIC},) * 2
    program = torch.export.export(layer, (spaced((3, 5)).float(), torch.ones(3)), dynamic_shapes=(batch,))
    larger = (spaced((7, 5)).float(), torch.full((7,), 4.0))
    torch.testing.assert_close(program.module()(*larger), layer(*larger))


def test_labels_that_are_no_classes() -> None:
    layer = one_layer(HINGE, (2, 3), (2,))
    message = 'layer "L": label 3 at position 1 of "x1" is outside \\[0, 3\\), the classes of "x0"'
    with pytest.raises(DataError, match=message):
        layer(torch.zeros(2, 3), torch.tensor([0.0, 3]))


@pytest.mark.parametrize("labels", [(3,), (2, 2), ()])
def test_refusals(labels: tuple[int, ...]) -> None:
    message = f'needs one label for each sample (axis 0): "x" (2, 3) and "y" {labels}'
    check_refusal(f'bottom: "x" §bottom: "y" {HINGE}', message, x=(2, 3), y=labels)
