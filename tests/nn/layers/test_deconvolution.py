"""Deconvolution: worked by hand, the gradient of a Convolution, and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bpt.nn.layers.convolution import Convolution
from tests.support.gradient_checker import spaced
from tests.support.one_layer import one_layer, randomise, shapes_of


def body(settings: str, kind: str = "Deconvolution") -> str:
    return f'type: "{kind}" convolution_param {{ {settings} }}'


def test_by_hand() -> None:
    layer = one_layer(body("num_output: 1 kernel_size: 3 stride: 2"), (1, 1, 2, 1))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.arange(9.0).reshape(1, 1, 3, 3))
        layer.blobs[1].fill_(100)
    top = layer(torch.tensor([1.0, 10]).reshape(1, 1, 2, 1))
    # Rows 0 to 2 are 1 · filters, rows 2 to 4 are 10 · filters; they meet in row 2.
    rows = [[0, 1, 2], [3, 4, 5], [6 + 0, 7 + 10, 8 + 20], [30, 40, 50], [60, 70, 80]]
    assert torch.equal(top, torch.tensor(rows)[None, None] + 100.0)


OPTIONS = {
    "1-D": ("num_output: 3 kernel_size: 3 stride: 2 pad: 1", (2, 2, 4), (2, 3, 7)),
    "2-D per axis": (
        "num_output: 2 kernel_size: 3 kernel_size: 2 stride: 1 stride: 3 pad: 1 pad: 0",
        (2, 1, 3, 2),
        (2, 2, 3, 5),
    ),
    "sides": ("num_output: 2 kernel_h: 1 kernel_w: 4 stride_h: 2 stride_w: 1 pad_w: 2", (1, 1, 3, 3), (1, 2, 5, 2)),
    "grouped, dilated": ("num_output: 6 kernel_size: 2 dilation: 1 dilation: 3 group: 3", (1, 3, 2, 3), (1, 6, 3, 6)),
    "depthwise": (
        "num_output: 3 kernel_size: 4 stride: 2 pad: 1 group: 3 bias_term: false",
        (2, 3, 3, 2),
        (2, 3, 6, 4),
    ),
    "3-D": ("num_output: 2 kernel_size: 2 stride: 1 stride: 2 stride: 1 pad: 1", (1, 2, 2, 3, 4), (1, 2, 1, 4, 3)),
}
options = pytest.mark.parametrize(("settings", "shape", "top"), OPTIONS.values(), ids=OPTIONS.keys())


@options
def test_is_a_convolutions_gradient(settings: str, shape: tuple[int, ...], top: tuple[int, ...]) -> None:
    assert shapes_of(body(settings), shape) == (top,)
    layer = randomise(one_layer(body(settings), shape)).double()
    # The convolution from the top to the bottom, with the bottom's number of outputs.
    back = settings.replace(settings.split(" kernel", maxsplit=1)[0], f"num_output: {shape[1]}")
    convolution = randomise(one_layer(body(back, "Convolution"), top)).double()
    assert convolution.blobs[0].shape == layer.blobs[0].shape
    x, y = spaced(shape), spaced(top, 1).requires_grad_()
    with torch.no_grad():
        convolution.blobs[0].copy_(layer.blobs[0])
    (wanted,) = torch.autograd.grad(convolution(y), y, x)
    if len(layer.blobs) == 2:
        wanted = wanted + layer.blobs[1].reshape(-1, *(1,) * (len(shape) - 2))
    torch.testing.assert_close(layer(x), wanted)


def test_axis_counts_leading_axes_as_batch() -> None:
    by_one = randomise(one_layer(body("num_output: 3 kernel_size: 2"), (6, 2, 4, 5)))
    by_two = randomise(one_layer(body("num_output: 3 kernel_size: 2 axis: -3"), (2, 3, 2, 4, 5)))
    x = torch.rand(2, 3, 2, 4, 5)
    torch.testing.assert_close(by_two(x), by_one(x.reshape(6, 2, 4, 5)).reshape(2, 3, 3, 5, 6))


def test_all_bottoms_share_the_filters() -> None:
    settings = body("num_output: 2 kernel_size: 2")
    layer = randomise(one_layer(settings, (1, 1, 2, 2), (1, 1, 2, 2), tops=2))
    x = torch.rand(1, 1, 2, 2)
    first, second = layer(x, 2 * x)
    bias = layer.blobs[1].reshape(2, 1, 1)
    torch.testing.assert_close(second - bias, 2 * (first - bias))


@pytest.mark.parametrize(("norm", "fan"), [("FAN_IN", 32 * 25), ("FAN_OUT", 64 * 25), ("AVERAGE", 48 * 25)])
def test_a_filler_takes_the_axes_as_they_stand(norm: str, fan: int) -> None:
    # Quirk of Caffe: (64, 32, 5, 5), so that what it calls inputs are num_output / group · kernel.
    filler = f'weight_filler {{ type: "xavier" variance_norm: {norm} }}'
    layer = one_layer(body(f"num_output: 64 kernel_size: 5 group: 2 {filler}"), (1, 64, 2, 2))
    assert layer.blobs[0].shape == (64, 32, 5, 5)
    assert float(layer.blobs[0].detach().abs().max()) == pytest.approx(math.sqrt(3 / fan), rel=1e-3)


def enlarge(x: Tensor, factor: int) -> Tensor:
    kernel, pad = 2 * factor - factor % 2, math.ceil((factor - 1) / 2)
    channels = x.shape[1]
    settings = (
        f"num_output: {channels} group: {channels} kernel_size: {kernel} stride: {factor} pad: {pad} bias_term: false"
        ' weight_filler { type: "bilinear" }'
    )
    top: Tensor = one_layer(body(settings), tuple(x.shape))(x)
    return top.detach()


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_bilinear_filler_enlarges_by_interpolation(factor: int) -> None:
    x = torch.rand(2, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    top = enlarge(x, factor)
    assert top.shape == (2, 3, 6 * factor, 5 * factor)
    wanted = torch.nn.functional.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)
    inner = slice(factor, -factor)  # at the border Caffe's window reaches over zeros
    torch.testing.assert_close(top[..., inner, inner], wanted[..., inner, inner])


def test_is_no_convolution_to_those_who_speed_these_up() -> None:
    # As tasks, and with a kernel of 1 as a product, convolutions go other ways, on weights that stand otherwise.
    assert not isinstance(one_layer(body("num_output: 2 kernel_size: 1"), (1, 3, 2, 2)), Convolution)


def test_mixes_samples() -> None:
    layer = one_layer(body("num_output: 2 kernel_size: 1 axis: 0"), (4, 3, 3))
    assert layer.mixes_samples(layer.spec, [(4, 3, 3)]) == "it takes axis 0, the samples, for channels"
    layer = one_layer(body("num_output: 2 kernel_size: 1"), (4, 3, 3))
    assert layer.mixes_samples(layer.spec, [(4, 3, 3)]) == ""
