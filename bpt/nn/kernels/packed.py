"""Convolutions and products with weights that are packed for the processor once, not in every call; forward only.

oneDNN, by which torch convolves on a CPU, needs the weights in blocks whose form depends on the processor. Torch has
operators for that, which it uses where it compiles a net. They also add another tensor before they write the top. They
are not public, so they are tested before use; without them everything works, more slowly. They could apply a ReLU, too,
but theirs turns NaN into 0, so a diverged net would look healthy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from bpt.nn.kernels.channels_last import channels_last, is_channels_last
from bpt.nn.kernels.linear import SMALL


@dataclass(frozen=True)
class PackedConvolution:
    """A convolution by packed filters, or the sum of it and another tensor.

    Attributes:
        filters: the packed filters, opaque.
        bias: ``(outputs,)``, or none.
        stride, pad, dilation: one number for each of the two spatial axes.
    """

    filters: Tensor
    bias: Tensor | None
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    group: int

    def __call__(self, x: Tensor, other: Tensor | None = None, over: bool = False) -> Tensor:
        """Return the top of ``x``, ``(N, channels, height, width)``, plus ``other``, if any.

        Args:
            over: whether the top may use the memory of ``other``, which then is not written anew.
        """
        window = self.pad, self.stride, self.dilation, self.group
        operators = torch.ops.mkldnn
        top: Tensor
        if other is None:
            top = operators._convolution_pointwise.default(x, self.filters, self.bias, *window, "none", [], "")
            return top
        if is_channels_last(x) and not is_channels_last(other):
            other = channels_last(other)
        if over:
            top = operators._convolution_pointwise_.binary(
                other, x, self.filters, self.bias, *window, "add", None, None, [], ""
            )
        else:
            top = operators._convolution_pointwise.binary(
                x, other, self.filters, self.bias, *window, "add", None, None, [], ""
            )
        return top


@dataclass(frozen=True)
class PackedProduct:
    """``x · weightᵀ + bias`` by packed weights.

    Attributes:
        weight: the packed weights, opaque.
        bias: ``(outputs,)``, or none.
        rows: the number of rows of ``x`` for which the weights were packed.
    """

    weight: Tensor
    bias: Tensor | None
    rows: int

    def __call__(self, x: Tensor) -> Tensor:
        """Return the top of ``x``, ``(rows, inputs)``."""
        top: Tensor = torch.ops.mkldnn._linear_pointwise.default(x.contiguous(), self.weight, self.bias, "none", [], "")
        return top


def pack(
    x: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    group: int,
) -> PackedConvolution | None:
    """Return a packed convolution for bottoms like ``x``; ``None`` where the operators are missing.

    Args:
        x: ``(N, channels, height, width)``, float32, on the CPU.
        filters: ``(outputs, channels / group, height, width)``.
    """
    fits = x.dim() == 4 and x.device.type == "cpu" and x.dtype == filters.dtype == torch.float32 and x.numel() > 0
    if not fits or not works():
        return None
    return _pack(x, filters, bias, stride, pad, dilation, group)


def _pack(
    x: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    group: int,
) -> PackedConvolution:
    stride, pad, dilation = (tuple(values) * (3 - len(values)) for values in (stride, pad, dilation))
    ordered = torch.ops.mkldnn._reorder_convolution_weight(filters, pad, stride, dilation, group, list(x.shape))
    return PackedConvolution(ordered, bias, stride, pad, dilation, group)


def pack_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> PackedProduct | None:
    """Return a packed product for bottoms like ``x``; ``None`` where that is impossible or does not pay.

    Args:
        x: ``(rows, inputs)``, float32, on the CPU.
        weight: ``(outputs, inputs)``.
    """
    fits = x.dim() == 2 and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    if not fits or x.numel() * weight.shape[0] < SMALL or not multiplies():
        return None
    return _pack_product(x, weight, bias)


def _pack_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> PackedProduct:
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), x.shape[0])
    return PackedProduct(ordered, bias, x.shape[0])


@cache
def works() -> bool:
    """Return whether this torch has the operators for convolutions, and they compute correctly."""
    x = torch.arange(2 * 3 * 25.0).reshape(2, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    filters = torch.arange(4 * 27.0).reshape(4, 3, 3, 3) - 60
    bias = torch.arange(4.0)
    other = (torch.arange(2 * 4 * 9.0).reshape(2, 4, 3, 3) * 100).contiguous(memory_format=torch.channels_last)
    try:
        with torch.no_grad():
            packed, plain = _pack(x, filters, bias, (2,), (1,), (1,), 1), torch.conv2d(x, filters, bias, 2, 1)
            total = plain + other
            sums = packed(x, other), packed(x, other, over=True)
            return torch.equal(packed(x), plain) and all(torch.equal(each, total) for each in sums)
    except (AttributeError, RuntimeError, TypeError):
        return False


@cache
def multiplies() -> bool:
    """Return whether this torch has the operators for products, and they compute correctly."""
    x = torch.arange(6.0).reshape(2, 3)
    weight = torch.arange(12.0).reshape(4, 3) - 6
    bias = torch.arange(4.0)
    try:
        with torch.no_grad():
            return torch.equal(_pack_product(x, weight, bias)(x), x @ weight.t() + bias)
    except (AttributeError, RuntimeError, TypeError):
        return False
