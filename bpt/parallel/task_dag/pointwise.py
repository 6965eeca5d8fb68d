"""A convolution of single places, by one thread: a product of matrices, since its channels lie side by side.

For batches below 16 torch has one thread do this by im2col, whose backward first clears what it writes. oneDNN, which
torch has several threads use, is no faster in one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.nn.kernels.channels_last import is_channels_last, places
from bpt.nn.layers.base import Layer
from bpt.nn.layers.convolution import Convolution
from bpt.parallel.task_dag.dag_state import like


def is_pointwise(layer: Layer) -> bool:
    """Return whether each place of the layer's top depends on the same place of its bottom alone."""
    if not isinstance(layer, Convolution) or layer.axis != 1 or layer.group != 1 or len(layer.spec.bottoms) != 1:
        return False
    window = layer.window
    return {*window.kernel, *window.stride} == {1} and not any(window.pad)


def convolve(layer: Layer, x: Tensor) -> Tensor:
    """Return the top of a pointwise layer from its bottom ``(N, channels, …)``, in the same layout.

    Bottoms whose channels do not lie side by side go through the layer itself.
    """
    if not is_channels_last(x):
        top = layer(x)
        assert isinstance(top, Tensor)
        return top
    assert isinstance(layer, Convolution)
    bias = layer.blob(1) if layer.bias_term else None
    y: Tensor = _Pointwise.apply(x, layer.blob(0), bias)  # type: ignore[no-untyped-call]
    return y


class _Pointwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        y = like((x.shape[0], weight.shape[0], *x.shape[2:]), x)  # its rows are a view, since x is channels-last
        if bias is None:
            torch.mm(places(x), weight.flatten(1).t(), out=places(y))
        else:
            torch.addmm(bias, places(x), weight.flatten(1).t(), out=places(y))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad  # type: ignore[attr-defined]
        rows = places(dy)
        dx = None
        if wants_x:
            dx = like(tuple(x.shape), x)
            torch.mm(rows, weight.flatten(1), out=places(dx))
        d_weight = torch.mm(rows.t(), places(x)).view(weight.shape) if wants_weight else None
        return dx, d_weight, rows.sum(0) if wants_bias else None
