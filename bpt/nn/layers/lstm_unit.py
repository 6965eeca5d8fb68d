"""LSTMUnit: the part of an LSTM's time step that follows the matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.recurrent import ALONG_TIME


@LAYERS.register("LSTMUnit")
class LSTMUnit(Layer):
    """``c = f · c_prev + i · g`` and ``h = o · tanh(c)``: one time step of N streams. Caffe unrolls an LSTM into these.

    Bottoms: the previous cells ``(1, N, H)``; gates ``(1, N, 4H)`` before their sigmoids, in the order i, f, o, and g
    before its tanh; markers ``(1, N)``, which multiply ``f``: 0 where a sequence begins. The markers get no diff. Tops:
    ``c`` and ``h``, both ``(1, N, H)``. (Hochreiter and Schmidhuber, *Long short-term memory*, 1997; the variant of
    Zaremba and Sutskever, *Learning to execute*, 2014.)
    """

    arity = Arity(bottoms=(3, 3), tops=(2, 2))
    whole_batch_only = ALONG_TIME
    within_batch = True
    no_collectives = True
    family = Family.RECURRENT
    flops_per_top = 10  # four gates, the marker, c (3), tanh, h
    bottoms_without_diff = (2,)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        cells, gates, markers = bottoms
        fits = len(cells) == 3 and cells[0] == 1 and gates == (1, cells[1], 4 * cells[2]) and markers == cells[:2]
        if not fits:
            raise spec.error(
                f"needs bottoms (1, N, H), (1, N, 4H) and (1, N), of one time step: {show_bottoms(spec, bottoms)}",
                "bottom",
            )
        return LayerShapes((cells, cells))

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        before, gates, markers = bottoms
        i, f, o, g = gates.chunk(4, -1)
        forget: Tensor = _Forget.apply(f, markers.detach().unsqueeze(-1))  # type: ignore[no-untyped-call]
        cells = forget * before + torch.sigmoid(i) * torch.tanh(g)
        return cells, torch.sigmoid(o) * torch.tanh(cells)


class _Forget(torch.autograd.Function):
    """``f = marker · sigmoid(x)`` with Caffe's derivative ``f · (1 - f)``, which is calculus for markers 0 and 1."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, marker: Tensor) -> Tensor:
        forget = torch.sigmoid(x) * marker
        ctx.save_for_backward(forget)
        return forget

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, diff: Tensor) -> tuple[Tensor, None]:
        (forget,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return diff * forget * (1 - forget), None
