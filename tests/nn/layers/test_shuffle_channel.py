from __future__ import annotations

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import flops_of, one_layer, shapes_of

Shape = tuple[int, ...]


def shuffle(group: int) -> str:
    return f'type: "ShuffleChannel" shuffle_channel_param {{ group: {group} }}'


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@pytest.mark.parametrize("shape", [(3, 6), (1, 6, 2, 1)])
def test_gradients(group: int, shape: Shape) -> None:
    check_gradients(shuffle(group), shape)


@pytest.mark.parametrize(
    ("group", "order"), [(1, [0, 1, 2, 3, 4, 5]), (2, [0, 3, 1, 4, 2, 5]), (3, [0, 2, 4, 1, 3, 5])]
)
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 3), (2, 6, 3, 4), (2, 6, 1, 2, 2)])
def test_channels_are_dealt_out(group: int, order: list[int], shape: Shape) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one_layer(shuffle(group), shape)(x), x[:, order])
    assert shapes_of(shuffle(group), shape) == (shape,)


def test_channels_last_stays_so() -> None:
    x = torch.rand(2, 6, 3, 4).contiguous(memory_format=torch.channels_last)
    top = one_layer(shuffle(2), (2, 6, 3, 4))(x)
    assert top.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(top, x[:, [0, 3, 1, 4, 2, 5]])


def test_flops() -> None:
    assert flops_of(shuffle(2), (2, 4, 3)) == 0


def test_refusals() -> None:
    for group in (0, 4):
        check_refusal(
            f'type: "ShuffleChannel" top: "y" shuffle_channel_param {{ §group: {group} }}',
            f'group {group} does not divide the channels (axis 1) of bottom "a" (2, 6)',
            a=(2, 6),
        )
    check_refusal(
        '§bottom: "a" type: "ShuffleChannel" top: "y"',
        "needs a bottom of at least 2 axes (N, channels), not shape (6,)",
        a=(6,),
    )
