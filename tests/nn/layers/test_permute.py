from __future__ import annotations

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import flops_of, one_layer, shapes_of

Shape = tuple[int, ...]


def permute(*order: int) -> str:
    return f'type: "Permute" permute_param {{ {" ".join(f"order: {axis}" for axis in order)} }}'


@pytest.mark.parametrize("order", [(), (0, 2, 3, 1), (3, 1)])
def test_gradients(order: Shape) -> None:
    check_gradients(permute(*order), (2, 3, 1, 4))


@pytest.mark.parametrize(
    ("order", "whole"), [((), (0, 1, 2, 3)), ((0, 2, 3, 1), (0, 2, 3, 1)), ((2,), (2, 0, 1, 3)), ((3, 1), (3, 1, 0, 2))]
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_axes_not_named_follow(order: Shape, whole: Shape, layout: torch.memory_format) -> None:
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    top = one_layer(permute(*order), (2, 3, 4, 5))(x.contiguous(memory_format=layout))
    assert shapes_of(permute(*order), (2, 3, 4, 5)) == (top.shape,)
    assert top.is_contiguous()
    for place in ([0, 0, 0, 0], [1, 2, 3, 4], [1, 0, 2, 1]):
        assert top[tuple(place[axis] for axis in whole)] == x[tuple(place)]


def test_flops() -> None:
    assert flops_of(permute(0, 2, 1), (2, 3, 4)) == 0


def test_refusals() -> None:
    body = 'type: "Permute" top: "y" permute_param'
    check_refusal(
        f"{body} {{ order: 0 §order: 3 }}", 'order 3 is outside [0, 3), the axes of bottom "a" (2, 3, 4)', a=(2, 3, 4)
    )
    check_refusal(f"{body} {{ order: 0 order: 1 §order: 0 }}", "order names axis 0 twice", a=(2, 3, 4))
