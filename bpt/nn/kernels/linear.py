"""``x · weightᵀ + bias``, by oneDNN where it is faster than the BLAS that torch calls.

On a CPU, torch multiplies matrices with MKL, whose fast code is for Intel's processors. oneDNN, which torch includes
for convolutions, has equally fast code for all. Its operator is not public, so it is tested before use. Without it
everything works, more slowly. A caller that has measured both can name the library of each kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from bpt.nn.kernels.algorithm import BY_TORCH, Algorithm, Algorithms, KernelRole, Kernels
from bpt.nn.kernels.backward_part import wanted_gradients
from bpt.nn.kernels.recording import is_compiling_or_tracing

SMALL = 2_000_000  # multiply-adds below which the call costs more than it saves


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, algorithms: Algorithms = BY_TORCH) -> Tensor:
    """Return the result of ``torch.nn.functional.linear``.

    Args:
        x: ``(…, inputs)``.
        weight: ``(outputs, inputs)``.
        bias: ``(outputs,)``, or none.
        algorithms: the library of each kernel; those that cannot run are replaced by TORCH.
    """
    if is_compiling_or_tracing():
        return functional.linear(x, weight, bias)
    y: Tensor
    if algorithms and _can(x, weight):
        y = _LinearBy.apply(x.contiguous(), weight, bias, algorithms)  # type: ignore[no-untyped-call]
    elif _suits(x, weight):
        y = _Linear.apply(x.contiguous(), weight, bias)  # type: ignore[no-untyped-call]
    else:
        y = functional.linear(x, weight, bias)
    return y


def linear_kernels(x: Tensor, weight: Tensor, bias: Tensor | None) -> Kernels:
    """Return the kernels that ``linear`` can choose among for these tensors; none if there is no choice."""
    if not _can(x, weight):
        return {}
    x, dy = x.contiguous(), x.new_ones((len(x), len(weight)))
    other = Algorithm.BLAS if _suits(x, weight) else Algorithm.ONEDNN
    return {
        KernelRole.FORWARD: {each: partial(_forward, each, x, weight, bias) for each in (Algorithm.TORCH, other)},
        KernelRole.BY_DATA: {each: partial(_by_data, each, dy, weight) for each in (Algorithm.TORCH, other)},
        KernelRole.BY_WEIGHTS: {each: partial(_by_weights, each, dy, x) for each in (Algorithm.TORCH, other)},
    }


def _can(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN can multiply these."""
    fits = x.dim() == 2 and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    return fits and x.numel() > 0 and works()


def _suits(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN multiplies these faster, and can."""
    return x.dim() == 2 and x.numel() * weight.shape[0] >= SMALL and _can(x, weight)


class DeferredProduct:
    """The gradients of the weights of one fully connected layer, computed once for all pieces of a batch.

    The backward pass of a piece computes the diff of its bottom only, for which others may be waiting. One product with
    the rows of all pieces is faster than one for each piece, and writes the gradient once.
    """

    def __init__(self) -> None:
        self._weights: list[Tensor] = []
        self._rows: list[tuple[Tensor, Tensor]] = []  # the bottom and the diff of the top of each piece

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``x · weightᵀ + bias`` for a piece; its backward pass leaves the weights to ``gradients``."""
        self._weights = self._weights or [each for each in (weight, bias) if each is not None]
        y: Tensor = _LinearOfPiece.apply(x.contiguous(), weight, bias, self._rows)  # type: ignore[no-untyped-call]
        return y

    def gradients(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the weights and the bias with their gradients, after the backward passes of all pieces."""
        if not self._rows:
            return
        x, dy = (torch.cat(each) for each in zip(*self._rows, strict=True))
        self._rows.clear()
        if self._weights[0].requires_grad:
            yield self._weights[0], multiply(dy.t(), x.t()) if _suits(x, dy.t()) else dy.t() @ x
        for bias in self._weights[1:]:
            if bias.requires_grad:
                yield bias, dy.sum(0)


@cache
def works() -> bool:
    """Return whether this torch has the operator, for transposed matrices too, and it computes correctly."""
    x = torch.arange(6.0).reshape(2, 3)
    weight = torch.arange(12.0).reshape(4, 3)
    bias = torch.arange(4.0)
    try:
        with torch.no_grad():
            y = multiply(x, weight, bias)
            dx = multiply(y, weight.t())
            dw = multiply(y.t(), x.t())
            return bool(
                torch.equal(y, x @ weight.t() + bias) and torch.equal(dx, y @ weight) and torch.equal(dw, y.t() @ x)
            )
    except (AttributeError, RuntimeError, TypeError):
        return False


def multiply(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``a · bᵀ + bias`` by oneDNN's operator, which must be known to work."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        wants_x, wants_weight, wants_bias = wanted_gradients(ctx)
        dy = dy.contiguous()
        return (
            multiply(dy, weight.t()) if wants_x else None,
            multiply(dy.t(), x.t()) if wants_weight else None,
            dy.sum(0) if wants_bias else None,
        )


def _by_onednn(algorithm: Algorithm, x: Tensor, weight: Tensor) -> bool:
    return _suits(x, weight) if algorithm == Algorithm.TORCH else algorithm == Algorithm.ONEDNN


def _forward(algorithm: Algorithm, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return multiply(x, weight, bias) if _by_onednn(algorithm, x, weight) else functional.linear(x, weight, bias)


def _by_data(algorithm: Algorithm, dy: Tensor, weight: Tensor) -> Tensor:
    return multiply(dy, weight.t()) if _by_onednn(algorithm, dy, weight.t()) else dy @ weight


def _by_weights(algorithm: Algorithm, dy: Tensor, x: Tensor) -> Tensor:
    return multiply(dy.t(), x.t()) if _by_onednn(algorithm, x, dy.t()) else dy.t() @ x


class _LinearBy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None, algorithms: Algorithms) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.algorithms = algorithms  # type: ignore[attr-defined]
        return _forward(algorithms.get(KernelRole.FORWARD, Algorithm.TORCH), x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        wants_x, wants_weight, wants_bias, _ = wanted_gradients(ctx)
        by_data, by_weights = (
            ctx.algorithms.get(role, Algorithm.TORCH)  # type: ignore[attr-defined]
            for role in (KernelRole.BY_DATA, KernelRole.BY_WEIGHTS)
        )
        dy = dy.contiguous()
        return (
            _by_data(by_data, dy, weight) if wants_x else None,
            _by_weights(by_weights, dy, x) if wants_weight else None,
            dy.sum(0) if wants_bias else None,
            None,
        )


class _LinearOfPiece(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None, rows: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.rows = rows  # type: ignore[attr-defined]
        return multiply(x, weight, bias) if _suits(x, weight) else functional.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        wants_x, *wants_weights, _ = ctx.needs_input_grad  # type: ignore[attr-defined]
        dy = dy.contiguous()
        if any(wants_weights):
            ctx.rows.append((x, dy))  # type: ignore[attr-defined]
        dx = None
        if wants_x:
            dx = multiply(dy, weight.t()) if _suits(dy, weight.t()) else dy @ weight
        return dx, None, None, None
