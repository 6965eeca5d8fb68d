"""Attention: for each place of the queries, the values of all places, weighted by how well their keys match.

It follows SAGAN (Zhang et al., "Self-attention generative adversarial networks", 2019, eq. 1 and 2), from which
3D-ResAttNet has its self-attention layer. There queries, keys and values are 1x1x1 convolutions of one blob.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer, setting

FIELD = "attention_param"
BLOCK = 400_000  # pairs of a query and a key that are processed at a time: 1.6 MB for a matrix of their weights


@LAYERS.register("Attention")
class Attention(Layer):
    """``top[:, i] = Σ_j value[:, j] · softmax_j(scale · query[:, i] · key[:, j])`` for each sample.

    Bottoms: queries ``(N, fits, places …)``, keys ``(N, fits, places …)`` and values ``(N, channels, places …)``, with
    one or more axes of places. Keys and values have the same places; queries may have others. Top ``(N, channels,
    places of the queries …)``. ``attention_param { scale: 0 }`` means ``1 / sqrt(fits)``; the default is 1, as in
    SAGAN. The layer has no parameters.

    On a CPU the weights, a number for each pair of places, are made block by block, and again in backward, and never
    kept: 28³ places have 482 million pairs.
    """

    arity = Arity(bottoms=(3, 3))
    sample_independent = True
    family = Family.CONNECTED
    scale = setting(float, "attention_param.scale")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        query, key, value = bottoms
        for position, shape in enumerate(bottoms):
            if len(shape) < 3:
                raise spec.error(
                    f"needs (N, channels, places …): {_named(spec, bottoms, position)} has no axis of places",
                    "bottom",
                    position,
                )
            if shape[0] != query[0]:
                raise spec.error(
                    f"all bottoms must have the same samples (axis 0): {show_bottoms(spec, bottoms)}",
                    "bottom",
                    position,
                )
        if key[1] != query[1]:
            raise spec.error(
                f"keys must have the queries' channels: {show_bottoms(spec, bottoms[:2])}",
                "bottom",
                1,
            )
        if value[2:] != key[2:]:
            raise spec.error(
                f"values must be at the places of the keys: {_named(spec, bottoms, 1)} and {_named(spec, bottoms, 2)}",
                "bottom",
                2,
            )
        if not count(key[2:]):
            raise spec.error(f"{_named(spec, bottoms, 1)} has no places to choose from", "bottom", 1)
        if not math.isfinite(spec.param.attention_param.scale):
            raise spec.error(f"scale must be a number, not {spec.param.attention_param.scale}", FIELD, "scale")
        return LayerShapes(((*value[:2], *query[2:]),))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        """Return both products of each pair of a query and a key, plus four operations for the softmax."""
        query, key, value = bottoms
        pairs = query[0] * count(query[2:]) * count(key[2:])
        return pairs * (2 * query[1] + 4 + 2 * value[1])

    def forward(self, *bottoms: Tensor) -> Tensor:
        query, key, value = (bottom.flatten(2) for bottom in bottoms)
        scale = self.scale or 1 / math.sqrt(max(1, query.shape[1]))
        top = attend(query, key, value, scale)
        return top.reshape(*top.shape[:2], *bottoms[0].shape[2:])


def _named(spec: LayerSpec, bottoms: Sequence[Shape], position: int) -> str:
    return f'"{spec.bottom_names[position]}" {bottoms[position]}'


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Return the values weighted by the softmax over the keys of ``scale · query · key``.

    On a CPU this uses blocks, which at the sizes of convolutional nets are as fast as torch's kernels and need less
    memory. (Torch's avoid storing the weights only where keys have as many channels as values.) Elsewhere it uses
    torch's kernels.

    Args:
        query: ``(N, fits, queries)``.
        key: ``(N, fits, places)``.
        value: ``(N, channels, places)``.
        scale: the factor of the products.

    Returns:
        ``(N, channels, queries)``, with the channels side by side in memory if those of ``value`` are.
    """
    if value.device.type == "cpu" and not torch.compiler.is_compiling():
        return _Attend.apply(query, key, value, scale)  # type: ignore[no-untyped-call,no-any-return]
    q, k, v = (matrix.transpose(1, 2).unsqueeze(1) for matrix in (query, key, value))  # one head
    return functional.scaled_dot_product_attention(q, k, v, scale=scale).squeeze(1).transpose(1, 2)


class _Attend(torch.autograd.Function):
    """The blockwise attention: weights ``P = softmax(S)``, ``S = scale · qᵀ k``, and the top ``y = v Pᵀ``.

    So ``dv = dy P``, ``dP = dyᵀ v``, ``dS = P (dP - Σ P dP)``, ``dq = scale · k dSᵀ`` and ``dk = scale · q dS``.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        top = _like(value, query.shape[2])
        for samples, queries in _blocks(query, key):
            weights = _weights(query[samples, :, queries], key[samples], scale)
            top[samples, :, queries] = torch.bmm(value[samples], weights.transpose(1, 2))
        ctx.save_for_backward(query, key, value)
        ctx.scale = scale  # type: ignore[attr-defined]
        return top

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_top: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value = ctx.saved_tensors  # type: ignore[attr-defined]
        scale = ctx.scale  # type: ignore[attr-defined]
        d_query, d_key, d_value = _like(query), _like(key).zero_(), _like(value).zero_()
        for samples, queries in _blocks(query, key):
            some, dy = query[samples, :, queries], d_top[samples, :, queries]
            weights = _weights(some, key[samples], scale)
            d_value[samples].baddbmm_(dy, weights)
            d_weights = torch.bmm(dy.transpose(1, 2), value[samples])
            d_product = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            d_query[samples, :, queries] = torch.bmm(key[samples], d_product.transpose(1, 2)).mul_(scale)
            d_key[samples].baddbmm_(some, d_product, alpha=scale)
        return d_query, d_key, d_value, None


def _weights(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Return the weight of each place for each query: ``(samples, queries, places)``, rows that sum to 1."""
    return torch.softmax(torch.bmm(query.transpose(1, 2), key).mul_(scale), -1)


def _blocks(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield the samples and the range of their queries of each block: at most BLOCK pairs, or one query."""
    number, queries, places = query.shape[0], query.shape[2], key.shape[2]
    together = max(1, BLOCK // max(1, queries * places))
    rows = queries if queries * places <= BLOCK else max(1, BLOCK // places)
    for first in range(0, number, together):
        for start in range(0, queries, max(1, rows)):
            yield slice(first, first + together), slice(start, start + rows)


def _like(matrix: Tensor, places: int | None = None) -> Tensor:
    """Return an empty matrix laid out like ``matrix``, ``(N, channels, places)``; on demand with other places."""
    number, channels, own = matrix.shape
    places = own if places is None else places
    if matrix.stride(1) == 1 < channels and not matrix.is_contiguous():
        return matrix.new_empty(number, places, channels).transpose(1, 2)
    return matrix.new_empty(number, channels, places)
