from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import error_of, flops_of, one_layer, one_layer_graph, randomise, shapes_of


def conv(settings: str) -> str:
    return f'type: "Convolution" convolution_param {{ {settings} }}'


OPTIONS = {
    "1-D": ("num_output: 3 kernel_size: 3 stride: 2 pad: 1", (2, 2, 7)),
    "1-D dilated": ("num_output: 2 kernel_size: 2 dilation: 3 bias_term: false", (1, 3, 5)),
    "2-D per axis": ("num_output: 2 kernel_size: 3 kernel_size: 2 stride: 1 stride: 2 pad: 0 pad: 1", (2, 1, 5, 4)),
    "2-D dilated per axis": ("num_output: 2 kernel_size: 2 dilation: 1 dilation: 3", (1, 2, 3, 5)),
    "2-D grouped": ("num_output: 6 kernel_size: 2 group: 3", (1, 3, 3, 4)),
    "3-D": ("num_output: 2 kernel_size: 2 stride: 1 stride: 2 stride: 1 pad: 1", (1, 2, 2, 3, 2)),
}


def slow_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, places: tuple[int, ...], **by: int | list[int]
) -> Tensor:
    """The definition, one product at a time; ``by`` holds stride, pad and dilation, once or per axis."""
    axes = x.dim() - 2
    stride, pad, dilation = (
        value if isinstance(value, list) else [value] * axes for value in (by["stride"], by["pad"], by["dilation"])
    )
    outputs, inputs = weight.shape[:2]
    y = torch.zeros(x.shape[0], outputs, *places, dtype=x.dtype)
    per_group = outputs // (x.shape[1] // inputs)
    for n, o, c in product(range(x.shape[0]), range(outputs), range(inputs)):
        channel = o // per_group * inputs + c
        for place in product(*map(range, places)):
            for tap in product(*map(range, weight.shape[2:])):
                at = [p * s - q + t * d for p, s, q, t, d in zip(place, stride, pad, tap, dilation, strict=True)]
                if all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True)):
                    target, source, factor = (n, o, *place), (n, channel, *at), (o, c, *tap)
                    y[target] += x[source] * weight[factor]
    return y if bias is None else y + bias.reshape(-1, *(1,) * axes)


@pytest.mark.parametrize(("settings", "shape"), OPTIONS.values(), ids=OPTIONS.keys())
def test_is_the_definition(settings: str, shape: tuple[int, ...]) -> None:
    graph = one_layer_graph(conv(settings), shape)
    param = graph.nodes[-1].spec.param.convolution_param
    layer = randomise(one_layer(conv(settings), shape)).double()
    by = {
        name: list(given) if len(given) > 1 else (given[0] if given else default)
        for name, given, default in (
            ("stride", param.stride, 1),
            ("pad", param.pad, 0),
            ("dilation", param.dilation, 1),
        )
    }
    bias = layer.blobs[1] if len(layer.blobs) == 2 else None
    (top,) = (graph.edges[top].shape for top in graph.nodes[-1].tops)
    x = spaced(shape)
    torch.testing.assert_close(layer(x), slow_convolution(x, layer.blobs[0], bias, top[2:], **by))


@pytest.mark.parametrize(("settings", "shape"), OPTIONS.values(), ids=OPTIONS.keys())
def test_gradients(settings: str, shape: tuple[int, ...]) -> None:
    check_gradients(conv(settings), shape)


def test_axis_counts_leading_axes_as_batch() -> None:
    by_one = randomise(one_layer(conv("num_output: 3 kernel_size: 2"), (6, 2, 4, 5)))
    by_two = randomise(one_layer(conv("num_output: 3 kernel_size: 2 axis: -3"), (2, 3, 2, 4, 5)))
    by_zero = randomise(one_layer(conv("num_output: 3 kernel_size: 2 axis: 0"), (2, 4, 5)))
    x = torch.rand(2, 3, 2, 4, 5)
    wanted = by_one(x.reshape(6, 2, 4, 5))
    torch.testing.assert_close(by_two(x), wanted.reshape(2, 3, 3, 3, 4))
    torch.testing.assert_close(by_zero(x[0, 1]), wanted[1])


def test_hints_are_accepted() -> None:
    assert shapes_of(conv("num_output: 2 kernel_size: 3 engine: CUDNN force_nd_im2col: true"), (1, 1, 5, 5)) == (
        (1, 2, 3, 3),
    )


def test_a_side_of_the_pad_may_be_left_out() -> None:
    assert shapes_of(conv("num_output: 2 kernel_size: 3 pad_h: 1"), (1, 1, 5, 5)) == ((1, 2, 5, 3),)


def test_flops() -> None:
    # 2 · (4 / 2 · 3 · 3) for each of 2 · 6 · 8 · 7 top elements, and one more for the bias
    body = "num_output: 6 kernel_size: 3 pad: 1 group: 2"
    assert flops_of(conv(body), (2, 4, 8, 7)) == 672 * (36 + 1)
    assert flops_of(conv(body + " bias_term: false"), (2, 4, 8, 7)) == 672 * 36


ERRORS = [
    ("num_output: 2", (1, 2, 5, 5), "needs kernel_size, or kernel_h and kernel_w"),
    ("num_output: 2 kernel_size: 0", (1, 2, 5, 5), "kernel_size must be at least 1, not 0"),
    ("num_output: 2 kernel_h: 3 kernel_w: 0", (1, 2, 5, 5), "kernel_size must be at least 1, not 0"),
    ("num_output: 2 kernel_size: 3 stride: 0", (1, 2, 5, 5), "stride must be at least 1, not 0"),
    ("num_output: 2 kernel_size: 3 dilation: 0", (1, 2, 5, 5), "dilation must be at least 1, not 0"),
    ("num_output: 2 kernel_h: 3", (1, 2, 5, 5), "kernel_h is given alone; kernel_h and kernel_w go together"),
    (
        "num_output: 2 kernel_size: 3 stride_w: 2",
        (1, 2, 5, 5),
        "stride_w is given alone; stride_h and stride_w go together",
    ),
    (
        "num_output: 2 kernel_size: 3 kernel_h: 3 kernel_w: 3",
        (1, 2, 5, 5),
        "give kernel_size, or kernel_h and kernel_w, not both",
    ),
    ("num_output: 2 kernel_size: 3 pad: 1 pad_h: 1", (1, 2, 5, 5), "give pad, or pad_h and pad_w, not both"),
    (
        "num_output: 2 kernel_size: 3 kernel_size: 3 kernel_size: 3",
        (1, 2, 5, 5),
        "kernel_size must be given once, or once a spatial axis (2 in shape (1, 2, 5, 5)), not 3 times",
    ),
    (
        "num_output: 2 kernel_size: 3 stride: 1 stride: 1",
        (1, 2, 5, 5, 5),
        "stride must be given once, or once a spatial axis (3 in shape (1, 2, 5, 5, 5)), not 2 times",
    ),
    (
        "num_output: 2 kernel_h: 3 kernel_w: 3",
        (1, 2, 5, 5, 5),
        "kernel_h and kernel_w are for 2 spatial axes, a bottom of shape (1, 2, 5, 5, 5) has 3",
    ),
    (
        "num_output: 2 kernel_size: 3 dilation: 2 pad: 1",
        (1, 2, 2, 9),
        "a kernel that reaches over (5, 5) is bigger than the bottom of shape (1, 2, 2, 9) with pad (1, 1)",
    ),
    ("kernel_size: 3", (1, 2, 5, 5), "needs num_output, at least 1"),
    ("num_output: 0 kernel_size: 3", (1, 2, 5, 5), "needs num_output, at least 1"),
    ("num_output: 2 kernel_size: 3 group: 0", (1, 2, 5, 5), "group must be at least 1, not 0"),
    (
        "num_output: 4 kernel_size: 3 group: 2",
        (1, 3, 5, 5),
        "the 3 channels of a bottom of shape (1, 3, 5, 5) do not divide into 2 groups",
    ),
    ("num_output: 3 kernel_size: 3 group: 2", (1, 4, 5, 5), "num_output 3 does not divide into 2 groups"),
    (
        "num_output: 3 kernel_size: 3 axis: 4",
        (1, 4, 5, 5),
        'axis 4 is outside [-4, 4), the axes of bottom "x0" (1, 4, 5, 5)',
    ),
    (
        "num_output: 3 kernel_size: 3",
        (1, 4),
        "needs 1 to 3 spatial axes after the channels (axis 1), a bottom of shape (1, 4) has 0",
    ),
    (
        "num_output: 3 kernel_size: 3",
        (1, 4, 5, 5, 5, 5),
        "needs 1 to 3 spatial axes after the channels (axis 1), a bottom of shape (1, 4, 5, 5, 5, 5) has 4",
    ),
]


@pytest.mark.parametrize(("settings", "shape", "message"), ERRORS)
def test_errors(settings: str, shape: tuple[int, ...], message: str) -> None:
    assert error_of(conv(settings), shape) == message


def test_bottoms_of_different_shapes() -> None:
    assert error_of(conv("num_output: 2 kernel_size: 3"), (1, 2, 5, 5), (1, 2, 5, 6), tops=2) == (
        'all bottoms must have one shape: "x0" has (1, 2, 5, 5), "x1" (1, 2, 5, 6)'
    )
