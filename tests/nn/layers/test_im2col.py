"""Im2col: windows by hand and by torch's unfold, and what it shares with Convolution."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.support.gradient_checker import spaced
from tests.support.one_layer import error_of, one_layer, randomise, shapes_of


def body(settings: str) -> str:
    return f'type: "Im2col" convolution_param {{ {settings} }}'


def test_by_hand() -> None:
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]])[None, None]
    top = one_layer(body("kernel_size: 2"), (1, 1, 2, 3))(x)
    assert top.squeeze().tolist() == [[1, 2], [2, 3], [4, 5], [5, 6]]


def test_is_torchs_unfold() -> None:
    x = spaced((2, 3, 7, 6))
    settings = "kernel_size: 3 kernel_size: 2 stride: 2 stride: 1 pad: 1 pad: 2 dilation: 1 dilation: 2"
    top = one_layer(body(settings), (2, 3, 7, 6))(x)
    wanted = functional.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 2), stride=(2, 1))
    assert top.shape == (2, 18, 4, 8)
    assert torch.equal(top, wanted.reshape(top.shape))


@pytest.mark.parametrize(
    ("settings", "shape", "axis"),
    [
        ("kernel_size: 3 stride: 2 pad: 1", (2, 2, 7), 1),
        ("kernel_size: 2 kernel_size: 3 dilation: 2 dilation: 1", (2, 3, 4, 5), 1),
        ("kernel_size: 2 stride: 1 stride: 2 stride: 1 pad: 1", (1, 2, 2, 3, 2), 1),
        ("kernel_size: 2 axis: -3", (2, 2, 3, 4, 3), 2),
        ("kernel_size: 2 axis: 0", (3, 4, 3), 0),
    ],
)
def test_a_product_with_filters_is_a_convolution(settings: str, shape: tuple[int, ...], axis: int) -> None:
    convolution = f'type: "Convolution" convolution_param {{ num_output: 4 bias_term: false {settings} }}'
    layer = randomise(one_layer(convolution, shape)).double()
    x = spaced(shape)
    columns = one_layer(body(settings), shape)(x)
    product = torch.tensordot(layer.blobs[0].flatten(1), columns, ([1], [axis])).movedim(0, axis)
    torch.testing.assert_close(product, layer(x))


def test_only_the_window_is_read() -> None:
    assert shapes_of(body("kernel_size: 2 num_output: 7 group: 5"), (1, 2, 3, 3)) == ((1, 8, 2, 2),)


def test_mixes_samples() -> None:
    layer = one_layer(body("kernel_size: 1 axis: 0"), (4, 3, 3))
    assert layer.mixes_samples(layer.spec, [(4, 3, 3)]) == "it takes axis 0, the samples, for channels"
    layer = one_layer(body("kernel_size: 1"), (4, 3, 3))
    assert layer.mixes_samples(layer.spec, [(4, 3, 3)]) == ""


@pytest.mark.parametrize("settings", ["kernel_size: 4", "kernel_size: 1 axis: 0"])
def test_says_what_convolution_says(settings: str) -> None:
    shape = (2, 3, 3)
    both = (body(settings), f'type: "Convolution" convolution_param {{ num_output: 1 {settings} }}')
    if "axis" in settings:
        said = [(layer := one_layer(text, shape)).mixes_samples(layer.spec, [shape]) for text in both]
    else:
        said = [error_of(text, shape) for text in both]
    assert said[0] and said[0] == said[1]
