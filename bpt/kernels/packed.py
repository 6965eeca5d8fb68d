"""A convolution whose filters were laid out for the processor once, instead of in every call; forward only.

oneDNN, by which torch convolves on a CPU, wants the filters in blocks whose form depends on the processor. Torch has
operators for that, which it uses where it compiles a net. They are not public: they are tried out before use, and
without them everything works, more slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedConvolution:
    """``relu(convolution)`` or the convolution alone, by packed filters.

    Attributes:
        filters: opaque.
        bias: ``(outputs,)``, or none.
        stride, pad, dilation: one number for each of the two spatial axes.
        relu: whether what is below 0 becomes 0.
    """

    filters: Tensor
    bias: Tensor | None
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    group: int
    relu: bool

    def __call__(self, x: Tensor) -> Tensor:
        """The top of ``x``, ``(N, channels, height, width)``."""
        window = self.pad, self.stride, self.dilation, self.group
        behind = "relu" if self.relu else "none"
        top: Tensor = torch.ops.mkldnn._convolution_pointwise(x, self.filters, self.bias, *window, behind, [], "")
        return top


def pack(
    x: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    group: int,
    relu: bool,
) -> PackedConvolution | None:
    """For bottoms like ``x``; ``None`` where there are no such operators.

    Args:
        x: ``(N, channels, height, width)``, float32, on the CPU.
        filters: ``(outputs, channels / group, height, width)``.
    """
    fits = x.dim() == 4 and x.device.type == "cpu" and x.dtype == filters.dtype == torch.float32 and x.numel() > 0
    if not fits or not works():
        return None
    return _pack(x, filters, bias, stride, pad, dilation, group, relu)


def _pack(
    x: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    group: int,
    relu: bool,
) -> PackedConvolution:
    stride, pad, dilation = (tuple(values) * (3 - len(values)) for values in (stride, pad, dilation))
    ordered = torch.ops.mkldnn._reorder_convolution_weight(filters, pad, stride, dilation, group, list(x.shape))
    return PackedConvolution(ordered, bias, stride, pad, dilation, group, relu)


@cache
def works() -> bool:
    """Whether this torch has the operators, and they compute the right thing."""
    x = torch.arange(2 * 3 * 25.0).reshape(2, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    filters = torch.arange(4 * 27.0).reshape(4, 3, 3, 3) - 60
    bias = torch.arange(4.0)
    try:
        with torch.no_grad():
            top = _pack(x, filters, bias, (2,), (1,), (1,), 1, True)(x)
            return torch.equal(top, torch.conv2d(x, filters, bias, 2, 1).relu())
    except (AttributeError, RuntimeError, TypeError):
        return False
