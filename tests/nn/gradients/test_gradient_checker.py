from __future__ import annotations

import pytest
from torch.autograd.gradcheck import GradcheckError

from bpt.nn.layers import LAYERS
from bpt.nn.layers.activation import ReLU
from tests.support.gradient_checker import check_gradients, check_layer, spaced
from tests.support.one_layer import one_layer


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ('type: "ReLU"', lambda layer, x: x * x.detach()),
        ('type: "PReLU"', lambda layer, x: x * layer.blobs[0].detach() + 0 * layer.blobs[0]),
    ],
)
def test_a_wrong_gradient_is_found(body: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LAYERS[body.split('"')[1]], "forward", wrong)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        check_gradients(body, (2, 3))


def test_a_wrong_gradient_is_found_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = one_layer('type: "ReLU"', (2, 3))
    check_layer(layer, [spaced((2, 3))], fast=True)
    monkeypatch.setattr(ReLU, "forward", lambda layer, x: x * x.detach())
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        check_layer(layer, [spaced((2, 3))], fast=True)


def test_spaced_numbers_are_apart() -> None:
    values = spaced((3, 4)).flatten().sort().values
    assert (values.diff() > 0.3).all()
    assert values.abs().min() > 0.03
    assert values.abs().max() < 2
