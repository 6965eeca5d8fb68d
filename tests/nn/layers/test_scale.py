from __future__ import annotations

import pytest
import torch

from tests.support.one_layer import one_layer, one_layer_graph, randomise, tops_of

Shape = tuple[int, ...]


def scale(settings: str = "") -> str:
    return f'type: "Scale" scale_param {{ {settings} }}'


@pytest.mark.parametrize(
    ("settings", "bottoms", "shapes"),
    [
        ("bias_term: true", [(2, 3, 4)], [(3,), (3,)]),
        ("num_axes: -1", [(2, 3, 4)], [(3, 4)]),
        ("num_axes: 0 bias_term: true", [(2, 3, 4)], [(), ()]),
        ("axis: -2 num_axes: 2", [(2, 3, 4)], [(3, 4)]),
        ("bias_term: true", [(2, 3, 4), (3, 4)], [(3, 4)]),
        ("", [(2, 3, 4), (3,)], []),
    ],
)
def test_blobs(settings: str, bottoms: list[Shape], shapes: list[Shape]) -> None:
    assert [param.shape for param in one_layer_graph(scale(settings), *bottoms).params] == shapes


def test_start() -> None:
    layer = one_layer(scale("bias_term: true"), (1, 2))
    assert [blob.tolist() for blob in layer.blobs] == [[1, 1], [0, 0]]
    layer = one_layer(scale("filler { value: 2 } bias_term: true bias_filler { value: 3 }"), (1, 2))
    assert [blob.tolist() for blob in layer.blobs] == [[2, 2], [3, 3]]


def test_two_bottoms_and_a_bias() -> None:
    layer = randomise(one_layer(scale("bias_term: true axis: 0"), (2, 3), (2,)))
    top = layer(torch.ones(2, 3), torch.tensor([2.0, 3.0]))
    assert torch.equal(top, (torch.tensor([2.0, 3.0]) + layer.blobs[0])[:, None].expand(2, 3))


def test_no_channels() -> None:
    """torch's batch normalisation, which scales by channel, ended in an IndexError."""
    layer = one_layer('type: "Scale" scale_param { bias_term: true }', (2, 0, 4, 3))
    x = torch.zeros(2, 0, 4, 3, requires_grad=True)
    (y,) = tops_of(layer, x)
    y.sum().backward()
    assert y.shape == x.shape
    assert x.grad is not None and x.grad.shape == x.shape
