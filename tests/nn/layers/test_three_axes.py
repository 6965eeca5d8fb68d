"""Layers of 3-D networks, on volumes of odd sizes, against plain numbers; test_any_bottoms.py has the rest."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from tests.nn.layers.three_axes_layers import CONVOLUTION, LAYERS, POOLING, SHAPE
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer, randomise, shapes_of

every_layer = pytest.mark.parametrize("body", LAYERS.values(), ids=LAYERS)


def volumes(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Tensor:
    """Positive numbers."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.1


@every_layer
def test_inferred_shapes_are_those_of_the_tops(body: str) -> None:
    for shape in (SHAPE, (1, 2, 8, 6, 9), (2, 4, 3, 3, 4)):
        assert shapes_of(body, shape) == (tuple(one_layer(body, shape)(volumes(shape)).shape),)


def by_numpy(x: Tensor, window: int, stride: int, pad: int, what: str, empty: float) -> Tensor:
    """Windows cut out of an array that ``empty`` surrounds, as many as fit in; ``what`` of each."""
    padded = np.pad(x.numpy(), [(0, 0), (0, 0), *[(pad, pad)] * 3], constant_values=empty)
    cut = np.lib.stride_tricks.sliding_window_view(padded, (window,) * 3, (2, 3, 4))
    return torch.from_numpy(getattr(cut[:, :, ::stride, ::stride, ::stride], what)((-3, -2, -1)))


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 2, 1), (2, 1, 0), (3, 1, 1)])
def test_pooling_by_numpy(kernel: int, stride: int, pad: int) -> None:
    x = spaced(SHAPE).float()
    settings = f"kernel_size: {kernel} stride: {stride} pad: {pad} round_mode: FLOOR"
    largest = one_layer(f"{POOLING} {{ {settings} }}", SHAPE)(x)
    assert torch.equal(largest, by_numpy(x, kernel, stride, pad, "max", -np.inf))
    average = one_layer(f"{POOLING} {{ pool: AVE {settings} }}", SHAPE)(x)
    torch.testing.assert_close(average, by_numpy(x, kernel, stride, pad, "mean", 0))


def test_convolution_by_numpy() -> None:
    layer = randomise(one_layer(f"{CONVOLUTION} {{ num_output: 2 kernel_size: 3 stride: 2 pad: 1 }}", SHAPE))
    x = spaced(SHAPE).float()
    padded = np.pad(x.double().numpy(), [(0, 0), (0, 0), *[(1, 1)] * 3])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3, 3), (2, 3, 4))[:, :, ::2, ::2, ::2]
    filters, bias = (blob.detach().double().numpy() for blob in layer.blobs)
    wanted = np.einsum("ncdhwijk,ocijk->nodhw", windows, filters) + bias.reshape(-1, 1, 1, 1)
    torch.testing.assert_close(layer(x).detach(), torch.from_numpy(wanted).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d], ids=["contiguous", "last"])
def test_batch_norm_by_numpy(layout: torch.memory_format) -> None:
    x = (spaced(SHAPE) * 3 + 1).float().contiguous(memory_format=layout)
    layer = one_layer('type: "BatchNorm" batch_norm_param { moving_average_fraction: 0.5 eps: 0.001 }', SHAPE)
    exact = x.double().numpy()
    mean, variance = (getattr(exact, what)((0, 2, 3, 4)) for what in ("mean", "var"))
    wanted = (exact - mean.reshape(4, 1, 1, 1)) / np.sqrt(variance + 0.001).reshape(4, 1, 1, 1)
    torch.testing.assert_close(layer(x).double(), torch.from_numpy(wanted), rtol=1e-5, atol=1e-5)
    elements = 3 * 5 * 7 * 3
    for blob, statistic in zip(layer.blobs, (mean, variance * elements / (elements - 1), np.ones(1)), strict=True):
        torch.testing.assert_close(blob.detach().double(), torch.from_numpy(statistic), rtol=1e-5, atol=1e-5)
    layer.eval()  # by the stored statistics now, of weight 1
    stored = (exact - mean.reshape(4, 1, 1, 1)) / np.sqrt(variance * elements / (elements - 1) + 0.001).reshape(
        4, 1, 1, 1
    )
    torch.testing.assert_close(layer(x).double(), torch.from_numpy(stored), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("operation", ["SUM", "PROD", "MAX"])
def test_eltwise(operation: str) -> None:
    first, second = spaced((2, 3, 3, 1, 5), 0), spaced((2, 3, 3, 1, 5), 1) + 0.01  # no two are equal
    wanted = {"SUM": first + second, "PROD": first * second, "MAX": torch.maximum(first, second)}[operation]
    body = f'type: "Eltwise" eltwise_param {{ operation: {operation} }}'
    assert torch.equal(one_layer(body, (2, 3, 3, 1, 5), (2, 3, 3, 1, 5))(first, second), wanted)
    check_gradients(body, first, second)


def test_the_factor_of_self_attention() -> None:
    """One learned number, 0 at first: nothing gets through, and the number's gradient is not 0."""
    body = 'type: "Scale" scale_param { axis: 0 num_axes: 0 filler { type: "constant" value: 0 } }'
    layer = one_layer(body, SHAPE, phase=pb.TRAIN)
    x = volumes().requires_grad_()
    top = layer(x)
    assert torch.equal(top, torch.zeros(SHAPE))
    d_x, d_factor = torch.autograd.grad(top.sum(), (x, layer.blobs[0]))
    assert torch.equal(d_x, torch.zeros(SHAPE))
    torch.testing.assert_close(d_factor, x.detach().sum())
