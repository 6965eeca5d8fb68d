"""Convolutions of images on a CPU by several algorithms, for each of the three kernels of training.

The plain one is ``torch.convolution``, by oneDNN or by torch's own product of patches. The product of patches here
(im2col) has one row or column for each place of the top. It pays for filters with few channels, for which oneDNN has no
good kernel on some processors. Patches are made for a few samples at a time, so they stay in a core's cache and need
little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from bpt.nn.kernels.algorithm import Algorithm, Algorithms, KernelRole, Kernels
from bpt.nn.kernels.backward_part import wanted_gradients
from bpt.nn.kernels.channels_last import has_channels_last_strides, in_format, is_channels_last
from bpt.nn.kernels.linear import multiply, works

FEW = 4  # channels up to which products of patches are tried
BLOCK = 500_000  # elements of patches that are made at once; with float32, 2 MB
LARGE = 4_000_000  # elements of the patches of one sample above which they are not tried: 16 MB

Multiply = Callable[[Tensor, Tensor], Tensor]
"""The product of a matrix and another one, transposed."""


class ConvolutionSteps(NamedTuple):
    """How filters slide over two spatial axes: one number for each, or one for both."""

    stride: Sequence[int]
    pad: Sequence[int]
    dilation: Sequence[int]
    group: int


def can_choose(x: Tensor, weight: Tensor) -> bool:
    """Return whether there are several algorithms for these tensors."""
    on_cpu = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    return on_cpu and x.dim() == 4 and x.numel() > 0


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, steps: ConvolutionSteps, algorithms: Algorithms) -> Tensor:
    """Return the convolution of ``x`` by ``algorithms``; those that cannot run on it are replaced by TORCH.

    Args:
        x: ``(N, channels, height, width)``, in either memory format; the top has the same one.
        weight: ``(outputs, channels / group, height, width)``.
        bias: ``(outputs,)``, or none.
    """
    y: Tensor = _Convolve.apply(x, weight, bias, _expanded(steps), algorithms)  # type: ignore[no-untyped-call]
    return y


def convolution_kernels(x: Tensor, weight: Tensor, bias: Tensor | None, steps: ConvolutionSteps) -> Kernels:
    """Return the kernels that ``convolve`` can choose among for these tensors; none if there is no choice."""
    if not can_choose(x, weight):
        return {}
    steps = _expanded(steps)
    with torch.no_grad():
        dy = torch.ones_like(_torch_forward(x, weight, bias, steps))
    wants_bias = bias is not None
    return {
        KernelRole.FORWARD: {
            each: partial(FORWARD[each], x, weight, bias, steps)
            for each in FORWARD
            if _runs(each, KernelRole.FORWARD, x, weight, steps)
        },
        KernelRole.BY_DATA: {
            each: partial(BY_DATA[each], dy, x, weight, steps)
            for each in BY_DATA
            if _runs(each, KernelRole.BY_DATA, x, weight, steps)
        },
        KernelRole.BY_WEIGHTS: {
            each: partial(BY_WEIGHTS[each], dy, x, weight, steps, wants_bias)
            for each in BY_WEIGHTS
            if _runs(each, KernelRole.BY_WEIGHTS, x, weight, steps)
        },
    }


def _expanded(steps: ConvolutionSteps) -> ConvolutionSteps:
    """Return the steps with one number for each axis."""
    stride, pad, dilation = (list(each) * (2 // len(each)) for each in steps[:3])
    return ConvolutionSteps(stride, pad, dilation, steps.group)


def _runs(algorithm: Algorithm, role: KernelRole, x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> bool:
    """Return whether an algorithm can compute this kernel, and might be fast."""
    kernel = weight.shape[2:]
    if algorithm == Algorithm.FLIPPED:
        fits = all(pad <= d * (k - 1) for pad, d, k in zip(steps.pad, steps.dilation, kernel, strict=True))
        return fits and steps.group == max(steps.stride) == 1 < max(kernel)
    if algorithm not in (Algorithm.PATCHES, Algorithm.PATCHES_ONEDNN):
        return True
    if steps.group > 1 or x.shape[1] > FEW or _patch_size(x, weight, steps) > LARGE:
        return False
    if any(d > 1 and k > 1 for d, k in zip(steps.dilation, kernel, strict=True)):
        return False
    return algorithm == Algorithm.PATCHES or (has_channels_last_strides(x) and works())


def _patch_size(x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> int:
    """Return the number of elements of the patches of one sample."""
    return prod(_places(x, weight, steps)) * prod(weight.shape[1:])


def _places(x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> tuple[int, ...]:
    """Return height and width of the top."""
    axes = zip(x.shape[2:], weight.shape[2:], steps.pad, steps.stride, steps.dilation, strict=True)
    return tuple((size + 2 * pad - d * (k - 1) - 1) // stride + 1 for size, k, pad, stride, d in axes)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        steps: ConvolutionSteps,
        algorithms: Algorithms,
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.settings = steps, algorithms  # type: ignore[attr-defined]
        return FORWARD[_chosen(KernelRole.FORWARD, algorithms, x, weight, steps)](x, weight, bias, steps)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        steps, algorithms = ctx.settings  # type: ignore[attr-defined]
        wants_x, wants_weight, wants_bias, *_ = wanted_gradients(ctx)
        by_data, by_weights = (
            _chosen(role, algorithms, x, weight, steps) for role in (KernelRole.BY_DATA, KernelRole.BY_WEIGHTS)
        )
        dx = dw = db = None
        if wants_x and wants_weight and by_data == by_weights == Algorithm.TORCH:
            return *_backward(dy, x, weight, steps, [True, True, wants_bias]), None, None
        if wants_x:
            dx = BY_DATA[by_data](dy, x, weight, steps)
        if wants_weight:
            dw, db = BY_WEIGHTS[by_weights](dy, x, weight, steps, wants_bias)
        elif wants_bias:
            db = dy.sum((0, 2, 3))
        return dx, dw, db, None, None


def _chosen(role: KernelRole, algorithms: Algorithms, x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> Algorithm:
    algorithm = algorithms.get(role, Algorithm.TORCH)
    known: dict[KernelRole, Collection[Algorithm]] = {
        KernelRole.FORWARD: FORWARD,
        KernelRole.BY_DATA: BY_DATA,
        KernelRole.BY_WEIGHTS: BY_WEIGHTS,
    }
    usable = algorithm in known[role] and (algorithm == Algorithm.TORCH or _runs(algorithm, role, x, weight, steps))
    return algorithm if usable else Algorithm.TORCH


# Torch's own, in either format


def _torch_forward(x: Tensor, weight: Tensor, bias: Tensor | None, steps: ConvolutionSteps) -> Tensor:
    stride, pad, dilation, group = steps
    return torch.convolution(x, weight, bias, stride, pad, dilation, False, [0, 0], group)


def _torch_by_data(dy: Tensor, x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> Tensor:
    dx, _, _ = _backward(dy, x, weight, steps, [True, False, False])
    assert dx is not None
    return dx


def _torch_by_weights(
    dy: Tensor, x: Tensor, weight: Tensor, steps: ConvolutionSteps, wants_bias: bool
) -> tuple[Tensor, Tensor | None]:
    _, dw, db = _backward(dy, x, weight, steps, [False, True, wants_bias])
    assert dw is not None
    return dw, db


def _backward(
    dy: Tensor, x: Tensor, weight: Tensor, steps: ConvolutionSteps, wanted: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    stride, pad, dilation, group = steps
    outputs = [weight.shape[0]]
    dx, dw, db = torch.ops.aten.convolution_backward(
        dy, x, weight, outputs, stride, pad, dilation, False, [0, 0], group, wanted
    )
    return dx, dw, db


def _other_forward(x: Tensor, weight: Tensor, bias: Tensor | None, steps: ConvolutionSteps) -> Tensor:
    last = has_channels_last_strides(x)
    return in_format(_torch_forward(in_format(x, not last), weight, bias, steps), last)


def _other_by_data(dy: Tensor, x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> Tensor:
    last = has_channels_last_strides(x)
    # Only the shape and the format of the bottom are read.
    other = torch.empty(x.shape, memory_format=torch.contiguous_format if last else torch.channels_last)
    return in_format(_torch_by_data(in_format(dy, not last), other, weight, steps), last)


def _other_by_weights(
    dy: Tensor, x: Tensor, weight: Tensor, steps: ConvolutionSteps, wants_bias: bool
) -> tuple[Tensor, Tensor | None]:
    last = has_channels_last_strides(x)
    return _torch_by_weights(in_format(dy, not last), in_format(x, not last), weight, steps, wants_bias)


def _flipped_by_data(dy: Tensor, x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> Tensor:
    axes = zip(steps.pad, steps.dilation, weight.shape[2:], strict=True)
    pads = [dilation * (kernel - 1) - pad for pad, dilation, kernel in axes]
    turned = weight.flip(2, 3).transpose(0, 1)
    dx = torch.convolution(dy, turned, None, [1, 1], pads, steps.dilation, False, [0, 0], 1)
    return in_format(dx, has_channels_last_strides(x))


# Products of patches


def _patches_forward(x: Tensor, weight: Tensor, bias: Tensor | None, steps: ConvolutionSteps) -> Tensor:
    if _has_rows(x):
        return _rows_forward(_by_blas, x, weight, bias, steps)
    height, width = _places(x, weight, steps)
    outputs = weight.shape[0]
    filters = weight.reshape(outputs, -1)
    if not has_channels_last_strides(x):
        y = x.new_empty((x.shape[0], outputs, height * width))
        for samples, columns in _columns(x, weight, steps):
            torch.matmul(filters, columns, out=y[samples])
        return (y if bias is None else y.add_(bias.unsqueeze(1))).view(-1, outputs, height, width)
    y = x.new_empty((x.shape[0], height * width, outputs))
    for samples, columns in _columns(x, weight, steps):
        torch.bmm(columns.transpose(1, 2), filters.t().expand(len(columns), -1, -1), out=y[samples])
    return (y if bias is None else y.add_(bias)).view(-1, height, width, outputs).permute(0, 3, 1, 2)


def _rows_forward(
    multiply_by: Multiply, x: Tensor, weight: Tensor, bias: Tensor | None, steps: ConvolutionSteps
) -> Tensor:
    outputs = weight.shape[0]
    y = x.new_empty((x.shape[0], *_places(x, weight, steps), outputs))
    filters = weight.permute(0, 2, 3, 1).reshape(outputs, -1)
    for samples, rows in _rows(x, weight, steps):
        y[samples].view(-1, outputs).copy_(multiply_by(rows, filters))
    return (y if bias is None else y.add_(bias)).permute(0, 3, 1, 2)


def _patches_by_weights(
    dy: Tensor, x: Tensor, weight: Tensor, steps: ConvolutionSteps, wants_bias: bool
) -> tuple[Tensor, Tensor | None]:
    if _has_rows(x):
        return _rows_by_weights(_by_blas, dy, x, weight, steps, wants_bias)
    # ``(N, outputs, places)``, a view in either memory format
    flat = dy.permute(0, 2, 3, 1).flatten(1, 2).transpose(1, 2) if is_channels_last(dy) else dy.flatten(2)
    total = x.new_zeros((weight.shape[0], prod(weight.shape[1:])))
    for samples, columns in _columns(x, weight, steps):
        total += torch.bmm(flat[samples], columns.transpose(1, 2)).sum(0)
    return total.view(weight.shape), dy.sum((0, 2, 3)) if wants_bias else None


def _rows_by_weights(
    multiply_by: Multiply, dy: Tensor, x: Tensor, weight: Tensor, steps: ConvolutionSteps, wants_bias: bool
) -> tuple[Tensor, Tensor | None]:
    outputs, channels, *kernel = weight.shape
    flat = dy.permute(0, 2, 3, 1)
    total = x.new_zeros((outputs, prod(kernel) * channels))
    for samples, rows in _rows(x, weight, steps):
        total += multiply_by(flat[samples].reshape(-1, outputs).t(), rows.t())
    dw = total.view(outputs, *kernel, channels).permute(0, 3, 1, 2).contiguous()
    return dw, dy.sum((0, 2, 3)) if wants_bias else None


def _has_rows(x: Tensor) -> bool:
    """Return whether patches of ``x`` are copied faster as rows; with one channel, columns have longer runs."""
    return x.shape[1] > 1 and has_channels_last_strides(x)


def _rows(x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> Iterator[tuple[slice, Tensor]]:
    """Yield the patches of some samples at a time, as ``(samples · places, kernel · channels)``."""
    for samples, patches in _patches(x, weight, steps):
        yield samples, patches.permute(0, 2, 3, 4, 5, 1).reshape(-1, prod(weight.shape[1:]))


def _columns(x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> Iterator[tuple[slice, Tensor]]:
    """Yield the patches of some samples at a time, as ``(samples, channels · kernel, places)``."""
    for samples, patches in _patches(x, weight, steps):
        size = prod(weight.shape[1:])
        yield samples, patches.permute(0, 1, 4, 5, 2, 3).reshape(len(patches), size, -1)


def _patches(x: Tensor, weight: Tensor, steps: ConvolutionSteps) -> Iterator[tuple[slice, Tensor]]:
    """Yield views of the patches of some samples: ``(samples, channels, height, width, kernel …)``."""
    at_once = max(1, BLOCK // _patch_size(x, weight, steps))
    vertical, horizontal = steps.pad
    for start in range(0, len(x), at_once):
        samples = slice(start, min(start + at_once, len(x)))
        part = x[samples]
        if vertical or horizontal:
            part = functional.pad(part, [horizontal, horizontal, vertical, vertical])
        for axis, kernel, stride in zip((2, 3), weight.shape[2:], steps.stride, strict=True):
            part = part.unfold(axis, kernel, stride)
        yield samples, part


def _by_blas(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.t()


FORWARD: dict[Algorithm, Callable[[Tensor, Tensor, Tensor | None, ConvolutionSteps], Tensor]] = {
    Algorithm.TORCH: _torch_forward,
    Algorithm.OTHER_FORMAT: _other_forward,
    Algorithm.PATCHES: _patches_forward,
    Algorithm.PATCHES_ONEDNN: partial(_rows_forward, multiply),
}
BY_DATA: dict[Algorithm, Callable[[Tensor, Tensor, Tensor, ConvolutionSteps], Tensor]] = {
    Algorithm.TORCH: _torch_by_data,
    Algorithm.OTHER_FORMAT: _other_by_data,
    Algorithm.FLIPPED: _flipped_by_data,
}
BY_WEIGHTS: dict[
    Algorithm, Callable[[Tensor, Tensor, Tensor, ConvolutionSteps, bool], tuple[Tensor, Tensor | None]]
] = {
    Algorithm.TORCH: _torch_by_weights,
    Algorithm.OTHER_FORMAT: _other_by_weights,
    Algorithm.PATCHES: _patches_by_weights,
    Algorithm.PATCHES_ONEDNN: partial(_rows_by_weights, multiply),
}
