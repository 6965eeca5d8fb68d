"""RNN: a recurrent layer of the plain kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bpt.graph.layer_spec import LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels.linear import linear
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.recurrent import Recurrent, arity_of


@LAYERS.register("RNN")
class RNN(Recurrent):
    """A plain ``Recurrent`` layer: the state is ``h``, and the outputs are computed from it.

    In each step::

        h = tanh(W_x x + b + W_s x_static + W_h (marker · h)),  output = tanh(W_o h + b_o)

    Blobs: ``W_x (H, inputs)``, ``b (H,)``, ``W_s (H, static inputs)`` if there is a static bottom, ``W_h (H, H)``,
    ``W_o (H, H)`` and ``b_o (H,)``, with ``H = num_output``. (Elman, *Finding structure in time*, 1990, with a tanh on
    the output as in Caffe.)
    """

    arity = arity_of(states=1)
    gates = 1
    states = 1

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        shapes, param = super().infer(spec, bottoms), spec.param.recurrent_param
        size = param.num_output
        behind = (ParamSpec((size, size), param.weight_filler), ParamSpec((size,), param.bias_filler))
        return LayerShapes(shapes.tops, shapes.params + behind)

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return super().flops(spec, bottoms, tops) + 2 * count(tops[0]) * spec.param.recurrent_param.num_output

    def unroll(self, inputs: Tensor, markers: Tensor, first: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden, last = _Unroll.apply(inputs, self.extra_blob(0), markers, *first)  # type: ignore[no-untyped-call]
        outputs = linear(hidden.flatten(0, 1), self.extra_blob(1), self.extra_blob(2)).tanh()
        return outputs.view_as(hidden), (last,)


class _Unroll(torch.autograd.Function):
    """The hidden states of all steps. Backward computes the gradient of the weights in one product."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, markers: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        before: list[Tensor] = []  # marker · h of the step before
        hidden: list[Tensor] = []
        for x, marker in zip(inputs.unbind(), markers.unbind(), strict=True):
            before.append(h * marker)
            h = torch.addmm(x, before[-1], weight.t()).tanh()
            hidden.append(h)
        states = torch.stack(hidden)
        ctx.save_for_backward(weight, markers, torch.stack(before), states)
        ctx.mark_non_differentiable(h)
        return states, h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_hidden: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        weight, markers, before, states = ctx.saved_tensors
        slopes = 1 - states * states
        dh = torch.zeros_like(states[0])
        diffs: list[Tensor] = []
        steps = zip(*(tensor.unbind() for tensor in (d_hidden, slopes, markers)), strict=True)
        for diff, slope, marker in reversed(list(steps)):
            diffs.append((dh + diff).mul_(slope))
            dh = (diffs[-1] @ weight).mul_(marker)
        d_sums = torch.stack(diffs[::-1])
        d_weight = d_sums.flatten(0, 1).t() @ before.flatten(0, 1) if ctx.needs_input_grad[1] else None
        return d_sums, d_weight, None, None
