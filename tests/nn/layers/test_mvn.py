from __future__ import annotations

import pytest
import torch

from tests.support.one_layer import gradient_of, one_layer, shapes_of

Shape = tuple[int, ...]


def mvn(settings: str = "") -> str:
    return f'type: "MVN" mvn_param {{ {settings} }}'


def test_by_hand() -> None:
    # Mean 2, deviation 2: (0 - 2) / (2 + 2).
    x = torch.tensor([[[[0.0, 4], [4, 0]], [[5, 5], [5, 5]]]])
    top = one_layer(mvn("eps: 2"), (1, 2, 2, 2))(x)
    assert top.tolist() == [[[[-0.5, 0.5], [0.5, -0.5]], [[0, 0], [0, 0]]]]
    top = one_layer(mvn("normalize_variance: false"), (1, 2, 2, 2))(x)
    assert top.tolist() == [[[[-2, 2], [2, -2]], [[0, 0], [0, 0]]]]


def test_backward_is_caffes_where_eps_counts() -> None:
    # mvn_layer.cpp: dx = (dy - mean(dy) - y · mean(y · dy)) / (deviation + eps). Here y = ±1/2 and the divisor is 4.
    x = torch.tensor([[[[0.0, 4, 4, 0]]]], requires_grad=True)
    dy = torch.tensor([[[[1.0, 2, 3, 6]]]])
    one_layer(mvn("eps: 2"), (1, 1, 1, 4))(x).backward(dy)
    along = (-0.5 + 1 + 1.5 - 3) / 4
    expected = [(d - 3 - y * along) / 4 for d, y in zip([1, 2, 3, 6], [-0.5, 0.5, 0.5, -0.5], strict=True)]
    torch.testing.assert_close(gradient_of(x).flatten(), torch.tensor(expected))


def test_a_flat_channel_gives_a_finite_diff() -> None:
    x = torch.full((1, 1, 2, 2), 3.0, requires_grad=True)
    one_layer(mvn(), (1, 1, 2, 2))(x).sum().backward()
    assert torch.equal(gradient_of(x), torch.zeros(1, 1, 2, 2))


@pytest.mark.parametrize(
    ("bottom", "top"),
    [((3,), (3, 1, 1, 1)), ((3, 2), (3, 2, 1, 1)), ((3, 2, 5), (3, 2, 5, 1)), ((2, 3, 4, 5, 6), (2, 3, 4, 5, 6))],
)
def test_the_top_has_caffes_legacy_shape(bottom: Shape, top: Shape) -> None:
    assert shapes_of(mvn(), bottom) == (top,)
    assert one_layer(mvn(), bottom)(torch.rand(bottom)).shape == top
