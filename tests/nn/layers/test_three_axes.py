"""The layers that 3-D networks use, on volumes of odd sizes: any memory format, no samples, plain numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from tests.nn.layers.one_bottom_layers import run
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer, randomise, shapes_of, tops_of

SHAPE = (3, 4, 5, 7, 3)
CONVOLUTION = 'type: "Convolution" convolution_param'
POOLING = 'type: "Pooling" pooling_param'
LAYERS = {
    "convolution": f"{CONVOLUTION} {{ num_output: 6 kernel_size: 3 pad: 1 }}",
    "convolution, stride 2": f"{CONVOLUTION} {{ num_output: 6 kernel_size: 3 pad: 1 stride: 2 bias_term: false }}",
    "convolution, groups": f"{CONVOLUTION} {{ num_output: 6 kernel_size: 1 stride: 2 group: 2 }}",
    "convolution, per axis": f"""{CONVOLUTION} {{
        num_output: 2 kernel_size: 1 kernel_size: 5 kernel_size: 2 pad: 0 pad: 3 pad: 1 dilation: 1 dilation: 2
        dilation: 1 stride: 2 stride: 1 stride: 3 }}""",
    "max pooling": f"{POOLING} {{ kernel_size: 3 stride: 2 }}",
    "max pooling, pad over half": f"{POOLING} {{ kernel_size: 3 stride: 2 pad: 2 }}",
    "max pooling, empty window": f"{POOLING} {{ kernel_size: 1 stride: 4 }}",
    "average pooling": f"{POOLING} {{ pool: AVE kernel_size: 3 stride: 2 pad: 1 }}",
    "average pooling, pad over half": f"{POOLING} {{ pool: AVE kernel_size: 3 stride: 2 pad: 2 }}",
    "global average pooling": f"{POOLING} {{ pool: AVE global_pooling: true }}",
    "global max pooling": f"{POOLING} {{ global_pooling: true }}",
    "stochastic pooling": f"{POOLING} {{ pool: STOCHASTIC kernel_size: 3 stride: 2 }}",
    "batch norm": 'type: "BatchNorm"',
    "batch norm, global": 'type: "BatchNorm" batch_norm_param { use_global_stats: true }',
    "scale": 'type: "Scale" scale_param { bias_term: true }',
    "scale by one number": 'type: "Scale" scale_param { axis: 0 num_axes: 0 }',
    "scale, two axes": 'type: "Scale" scale_param { axis: 2 num_axes: 2 bias_term: true }',
    "bias": 'type: "Bias"',
    "relu": 'type: "ReLU"',
    "dropout": 'type: "Dropout"',
    "inner product": 'type: "InnerProduct" inner_product_param { num_output: 5 }',
    "softmax": 'type: "Softmax"',
    "flatten": 'type: "Flatten"',
}
every_layer = pytest.mark.parametrize("body", LAYERS.values(), ids=LAYERS)


def volumes(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Tensor:
    """Positive numbers."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.1


@every_layer
def test_channels_last_gives_the_same(body: str) -> None:
    plain, plain_grads = run(randomise(one_layer(body, SHAPE)), volumes())
    last, last_grads = run(
        randomise(one_layer(body, SHAPE)), volumes().contiguous(memory_format=torch.channels_last_3d)
    )
    torch.testing.assert_close(last, plain)
    torch.testing.assert_close(last_grads, plain_grads, rtol=1e-4, atol=1e-5)


@every_layer
def test_gradients(body: str) -> None:
    check_gradients(body, volumes((2, 2, 3, 4, 3)) if "STOCHASTIC" in body else (2, 2, 3, 4, 3))


@every_layer
def test_no_samples(body: str) -> None:
    empty = (0, *SHAPE[1:])
    top, (diff, *grads) = run(randomise(one_layer(body, empty)), torch.zeros(empty))
    assert top.shape == (0, *tops_of(one_layer(body, SHAPE), volumes())[0].shape[1:])
    assert diff.shape == empty
    for grad in grads:
        assert torch.equal(grad, torch.zeros_like(grad))


@every_layer
def test_inferred_shapes_are_those_of_the_tops(body: str) -> None:
    for shape in (SHAPE, (1, 2, 8, 6, 9), (2, 4, 3, 3, 4)):
        assert shapes_of(body, shape) == (tuple(one_layer(body, shape)(volumes(shape)).shape),)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d], ids=["contiguous", "last"])
@every_layer
def test_a_gpu_gives_the_same(body: str, layout: torch.memory_format) -> None:
    plain, plain_grads = run(randomise(one_layer(body, SHAPE)), volumes())
    x = volumes().cuda().contiguous(memory_format=layout)
    there, there_grads = run(randomise(one_layer(body, SHAPE)).cuda(), x)
    if "STOCHASTIC" not in body and "Dropout" not in body:
        torch.testing.assert_close(there.cpu(), plain)
        torch.testing.assert_close([grad.cpu() for grad in there_grads], plain_grads, rtol=1e-4, atol=1e-4)


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
