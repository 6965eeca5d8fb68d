from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from tests.support.gradient_checker import spaced
from tests.support.one_layer import one_layer, one_layer_graph, randomise, shapes_of


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
