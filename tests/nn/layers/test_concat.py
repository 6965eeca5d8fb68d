from __future__ import annotations

import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import flops_of, one_layer, shapes_of


def test_old_form_of_the_axis() -> None:
    assert shapes_of('type: "Concat" concat_param { concat_dim: 0 }', (2, 3), (1, 3)) == ((3, 3),)
    layer = one_layer('type: "Concat" concat_param { concat_dim: 0 }', (1, 2), (1, 2))
    assert layer(torch.tensor([[1, 2]]), torch.tensor([[3, 4]])).tolist() == [[1, 2], [3, 4]]


def test_one_bottom_is_not_copied() -> None:
    x = torch.rand(2, 3)
    assert one_layer('type: "Concat"', (2, 3))(x).data_ptr() == x.data_ptr()


def test_channels_last_is_kept() -> None:
    layer = one_layer('type: "Concat"', (2, 3, 4, 5), (2, 2, 4, 5))
    x, y = (torch.rand(2, c, 4, 5).to(memory_format=torch.channels_last) for c in (3, 2))
    top = layer(x, y)
    assert top.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(top[:, :3], x)
    assert torch.equal(top[:, 3:], y)


def test_copying_costs_no_flops() -> None:
    assert flops_of('type: "Concat"', (2, 3), (2, 3)) == 0


def test_refusals() -> None:
    check_refusal(
        'bottom: "a" §bottom: "b" type: "Concat" top: "y"',
        'bottoms must agree in all axes but axis 1: "a" (2, 3, 4) and "b" (2, 5, 6)',
        a=(2, 3, 4),
        b=(2, 5, 6),
    )
    check_refusal(
        'bottom: "a" bottom: "b" §bottom: "c" type: "Concat" top: "y" concat_param { axis: -1 }',
        'bottoms must agree in all axes but axis 1: "a" (2, 3) and "b" (2, 5) and "c" (2, 3, 1)',
        a=(2, 3),
        b=(2, 5),
        c=(2, 3, 1),
    )
    check_refusal(
        'type: "Concat" top: "y" concat_param { §axis: 2 }',
        'axis 2 is outside [-2, 2), the axes of bottom "a" (2, 3)',
        a=(2, 3),
    )
    check_refusal(
        'type: "Concat" top: "y" concat_param { §concat_dim: 7 }',
        'concat_dim 7 is outside [-2, 2), the axes of bottom "a" (2, 3)',
        a=(2, 3),
    )
    check_refusal(
        'type: "Concat" top: "y" concat_param { axis: 1 §concat_dim: 1 }',
        "give axis or concat_dim (its old form), not both",
        a=(2, 3),
    )
