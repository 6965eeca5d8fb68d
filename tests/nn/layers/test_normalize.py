from __future__ import annotations

import pytest
import torch

from tests.support.one_layer import gradient_of, one_layer, one_layer_graph

Shape = tuple[int, ...]


def normalize(settings: str = "") -> str:
    return f'type: "Normalize" norm_param {{ {settings} }}'


def test_by_hand() -> None:
    x = torch.tensor([[[3.0, 0], [4, 12]]])  # two channels, two places
    top = one_layer(normalize("across_spatial: false scale_filler { value: 10 }"), (1, 2, 2))(x)
    torch.testing.assert_close(top, torch.tensor([[[6.0, 0], [8, 10]]]))
    top = one_layer(normalize(), (1, 2, 2))(x)
    torch.testing.assert_close(top, x / 13)
    layer = one_layer(normalize("channel_shared: false eps: 27"), (1, 2, 2))  # 169 + 27 is the square of 14
    with torch.no_grad():
        layer.blobs[0].copy_(torch.tensor([14.0, 28]))
    torch.testing.assert_close(layer(x), torch.tensor([[[3.0, 0], [8, 24]]]))


def test_nothing_stays_nothing() -> None:
    x = torch.zeros(1, 2, 2, requires_grad=True)
    top = one_layer(normalize("across_spatial: false"), (1, 2, 2))(x)
    top.sum().backward()
    assert torch.equal(top, torch.zeros(1, 2, 2))
    torch.testing.assert_close(gradient_of(x), torch.full((1, 2, 2), 1e5))  # 1 / sqrt(eps)


@pytest.mark.parametrize(("settings", "shape"), [("", ()), ("channel_shared: false", (3,))])
def test_the_scale_has_ssds_shape_and_starts_at_1(settings: str, shape: Shape) -> None:
    (param,) = one_layer_graph(normalize(settings), (2, 3, 4, 5)).params
    assert param.shape == shape
    assert torch.equal(one_layer(normalize(settings), (2, 3, 4, 5)).blobs[0], torch.ones(shape))
