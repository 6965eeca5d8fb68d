"""Convolutions of single places: what a product of matrices gives is what the layer gives, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.nn.kernels.channels_last import FORMATS, is_channels_last
from bpt.nn.layers.convolution import Convolution
from bpt.parallel.task_dag.pointwise import _Pointwise, convolve, is_pointwise
from tests.support import task_dag_nets as nets

SIZE = "dim: 3 dim: 9 dim: 8"


def layer_of(window: str, size: str = SIZE, dtype: torch.dtype = torch.float64) -> Convolution:
    net = nets.net_of(nets.image_net(nets.convolution("conv", "x", f"num_output: 5 {window}", relu=False), 6, size)).to(
        dtype
    )
    found = net.layer(net.graph.nodes[1])
    assert isinstance(found, Convolution)
    return found


def images(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    """Random, and with the channels side by side."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    return x.to(memory_format=FORMATS[len(shape)])


def results(conv: Convolution, x: Tensor, fast: bool, dy: Tensor) -> dict[str, Tensor]:
    """The top and all gradients there are."""
    conv.zero_grad()
    x = x.detach().requires_grad_(x.requires_grad)
    y = convolve(conv, x) if fast else conv(x)
    assert isinstance(y, Tensor)
    found = {"top": y.detach()}
    if y.requires_grad:
        y.backward(dy)
    named = {"x": x.grad, **{name: value.grad for name, value in conv.named_parameters()}}
    return found | {name: grad for name, grad in named.items() if grad is not None}


def assert_alike(conv: Convolution, x: Tensor, tolerance: float, dy: Tensor | None = None) -> dict[str, Tensor]:
    if dy is None:
        dy = images((x.shape[0], 5, *x.shape[2:]), x.dtype) + 1
    fast = results(conv, x, True, dy)
    nets.assert_same(fast, results(conv, x, False, dy), tolerance)
    return fast


def test_which_are_pointwise() -> None:
    for window in (
        "kernel_size: 1", "kernel_size: 1 bias_term: false", "kernel_size: 1 dilation: 2",
        "kernel_h: 1 kernel_w: 1", "kernel_size: 1 kernel_size: 1 stride: 1",
    ):  # fmt: skip
        assert is_pointwise(layer_of(window)), window
    for window in (
        "kernel_size: 3", "kernel_h: 1 kernel_w: 3", "kernel_size: 1 stride: 2", "kernel_size: 1 pad: 1",
        "kernel_size: 1 pad_h: 0 pad_w: 1", "kernel_size: 1 stride_h: 1 stride_w: 2", "kernel_size: 1 axis: 2",
    ):  # fmt: skip
        assert not is_pointwise(layer_of(window)), window
    grouped = nets.net_of(nets.image_net(nets.convolution("conv", "x", "num_output: 6 kernel_size: 1 group: 3")))
    assert not is_pointwise(grouped.layer(grouped.graph.nodes[1]))
    assert not is_pointwise(grouped.layer(grouped.graph.nodes[2]))  # a ReLU
    of_two = nets.net_of(
        nets.image_net(
            nets.layer("Split", "x", "a b")
            + nets.layer("Convolution", "a b", "c d", "convolution_param { num_output: 2 kernel_size: 1 }")
        )
    )
    assert not any(is_pointwise(of_two.layer(node)) for node in of_two.graph.nodes)


@pytest.mark.parametrize("bias", ["", "bias_term: false"], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    ("samples", "height", "width"), [(6, 9, 8), (1, 7, 5), (3, 1, 8), (2, 9, 1), (17, 2, 3), (0, 9, 8), (4, 1, 1)]
)
def test_top_and_gradients(samples: int, height: int, width: int, bias: str) -> None:
    conv = layer_of(f"kernel_size: 1 {bias}")
    found = assert_alike(conv, images((samples, 3, height, width)).requires_grad_(), 1e-13)
    assert len(found) == (3 if bias else 4)
    single = layer_of(f"kernel_size: 1 {bias}", dtype=torch.float32)
    assert_alike(single, images((samples, 3, height, width), torch.float32).requires_grad_(), 1e-5)


def test_a_batch_of_channels_last_is_a_product_and_laid_out_alike() -> None:
    conv = layer_of("kernel_size: 1")
    x = images((6, 3, 9, 8)).requires_grad_()
    y = convolve(conv, x)
    assert type(y.grad_fn).__name__ == f"{_Pointwise.__name__}Backward"
    assert y.is_contiguous(memory_format=torch.channels_last) and not y.is_contiguous()
    y.sum().backward()
    assert x.grad is not None and x.grad.is_contiguous(memory_format=torch.channels_last)
    assert not is_of_product(convolve(conv, x.detach().contiguous()))
    volumes = layer_of("kernel_size: 1", "dim: 3 dim: 4 dim: 3 dim: 2")
    blob = images((2, 3, 4, 3, 2)).requires_grad_()
    assert is_pointwise(volumes)
    top = convolve(volumes, blob)
    assert is_of_product(top)
    assert is_channels_last(top)
    top.sum().backward()
    assert blob.grad is not None
    assert is_channels_last(blob.grad)
    assert not is_of_product(convolve(volumes, blob.detach().contiguous()))


@pytest.mark.parametrize("bias", ["", "bias_term: false"], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    "shape", [(6, 3, 5, 7, 3), (1, 3, 2, 1, 5), (3, 3, 1, 1, 4), (17, 3, 1, 2, 3), (0, 3, 2, 3, 4), (4, 3, 1, 1, 1)]
)
def test_volumes(shape: tuple[int, ...], bias: str) -> None:
    conv = layer_of(f"kernel_size: 1 {bias}", "dim: 3 dim: 5 dim: 7 dim: 3")
    found = assert_alike(conv, images(shape).requires_grad_(), 1e-13)
    assert len(found) == (3 if bias else 4)


def is_of_product(y: Tensor) -> bool:
    return type(y.grad_fn).__name__ == f"{_Pointwise.__name__}Backward"


def test_one_channel() -> None:
    """Its blob is laid out both strategies, so that the top's layout would be a guess; then the layer does it."""
    conv = layer_of("kernel_size: 1", "dim: 1 dim: 9 dim: 8")
    assert_alike(conv, images((6, 1, 9, 8)).requires_grad_(), 1e-13)


@pytest.mark.parametrize("wanted", [(False, True, True), (True, False, True), (True, True, False), (False,) * 3])
def test_gradients_that_nobody_wants(wanted: tuple[bool, bool, bool]) -> None:
    conv = layer_of("kernel_size: 1")
    for value, wants in zip(conv.parameters(), wanted[1:], strict=True):
        value.requires_grad_(wants)
    found = assert_alike(conv, images((6, 3, 9, 8)).requires_grad_(wanted[0]), 1e-13)
    assert len(found) == 1 + sum(wanted)


def test_diffs_of_any_layout_and_parts_of_blobs() -> None:
    conv = layer_of("kernel_size: 1")
    whole = images((6, 3, 9, 8))
    dy = images((6, 5, 9, 8)) + 1
    for x in (whole, whole[2:5], whole.narrow(2, 1, 4), images((6, 9, 9, 8))[:, 3:6]):
        part = dy[: x.shape[0], :, : x.shape[2]]
        for diff in (part, part.contiguous(), torch.ones((), dtype=part.dtype).expand_as(part)):
            assert_alike(conv, x.requires_grad_(), 1e-13, diff)


@pytest.mark.parametrize("samples", [1, 5, 6])
@pytest.mark.parametrize("engine", [pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST])
def test_weights_that_layers_share(samples: int, engine: int) -> None:
    def shared(name: str, bottom: str) -> str:
        text = nets.convolution(name, bottom, "num_output: 3 kernel_size: 1")
        return text.replace("convolution_param", 'param { name: "w" } param { name: "b" } convolution_param', 1)

    graph = nets.image_net(
        shared("first", "x") + shared("second", "first") + nets.fully_connected("score", "second", 5) + nets.LOSS
    )
    expected = nets.pass_over(Operator(nets.net_of(graph), engine=engine), passes=2)
    operator = nets.dag_operator(nets.net_of(graph), engine=engine)
    nets.assert_same(nets.pass_over(operator, passes=2), expected, 1e-12)


def test_a_wrong_bottom_is_an_error_not_a_wrong_number() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        convolve(layer_of("kernel_size: 1"), images((6, 4, 9, 8)))
