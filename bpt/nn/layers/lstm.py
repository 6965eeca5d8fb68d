"""LSTM, LSTMUnit and RNN: recurrent layers, and a single time step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels.linear import linear
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.recurrent import ALONG_TIME, Recurrent, arity_of


@LAYERS.register("LSTM")
class LSTM(Recurrent):
    """A ``Recurrent`` layer with long short-term memory: the outputs are ``h``, the states ``h`` and ``c``.

    With the gates i, f, o and g::

        i, f, o = sigmoid(W_x x + b + W_s x_static + W_h (marker · h)),  g = tanh(likewise)
        c = marker · f · c + i · g,  h = o · tanh(c)

    Blobs: ``W_x (4H, inputs)``, ``b (4H,)``, ``W_s (4H, static inputs)`` if there is a static bottom, and ``W_h (4H,
    H)``, with ``H = num_output``. Their rows are those of i, f, o and g. (Donahue et al., *Long-term recurrent
    convolutional networks*, 2015; the variant of Zaremba and Sutskever, *Learning to execute*, 2014.)
    """

    arity = arity_of(states=2)
    gates = 4
    states = 2

    def unroll(self, inputs: Tensor, markers: Tensor, first: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        outputs, *last = _UnrollLSTM.apply(inputs, self.extra_blob(0), markers, *first)  # type: ignore[no-untyped-call]
        return outputs, tuple(last)


class _UnrollLSTM(torch.autograd.Function):
    """All steps of a pass.

    Backward multiplies by the weights step by step, and computes their gradient in one product.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, markers: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        size = h.shape[-1]
        before: list[Tensor] = []  # marker · h of the step before
        cells: list[Tensor] = [c]
        gates: list[Tensor] = []  # i, f (without the marker) and o
        inputs_of_cells: list[Tensor] = []  # g
        tanhs: list[Tensor] = []
        outputs: list[Tensor] = []
        transposed = weight.t()
        for x, marker in zip(inputs.unbind(), markers.unbind(), strict=True):
            before.append(h * marker)
            sums = torch.addmm(x, before[-1], transposed)
            gates.append(sums[:, : 3 * size].sigmoid())
            i, f, o = gates[-1].chunk(3, 1)
            g = sums[:, 3 * size :].tanh()
            c = torch.addcmul(f * marker * c, i, g)
            tanh = c.tanh()
            h = o * tanh
            for made, kept in ((g, inputs_of_cells), (c, cells), (tanh, tanhs), (h, outputs)):
                kept.append(made)
        wanted = (torch.stack(tensors) for tensors in (before, gates, inputs_of_cells, cells, tanhs))
        ctx.save_for_backward(weight, markers, *wanted)
        ctx.mark_non_differentiable(h, c)
        return torch.stack(outputs), h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        weight, markers, before, gates, g, cells, tanhs = ctx.saved_tensors
        i, f, o = gates.chunk(3, 2)  # (T, N, H) each, as g
        f = f * markers
        into_cells = o * (1 - tanhs * tanhs)  # the derivative of h by c
        # The derivatives of c, and for o of h, by the sums from which the gates are computed.
        slopes = torch.cat([g * i * (1 - i), cells[:-1] * f * (1 - f), tanhs * o * (1 - o), i * (1 - g * g)], 2)
        dh, dc = torch.zeros_like(cells[0]), torch.zeros_like(cells[0])
        diffs: list[Tensor] = []
        steps = zip(*(t.unbind() for t in (d_outputs, into_cells, slopes, f, markers)), strict=True)
        for d_output, into_cell, slope, forget, marker in reversed(list(steps)):
            dh = dh + d_output
            dc = torch.addcmul(dc, dh, into_cell)
            diffs.append(torch.cat([dc, dc, dh, dc], 1).mul_(slope))
            dh = (diffs[-1] @ weight).mul_(marker)
            dc = dc * forget
        d_sums = torch.stack(diffs[::-1])
        d_weight = d_sums.flatten(0, 1).t() @ before.flatten(0, 1) if ctx.needs_input_grad[1] else None
        return d_sums, d_weight, None, None, None


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
        hidden, last = _UnrollRNN.apply(inputs, self.extra_blob(0), markers, *first)  # type: ignore[no-untyped-call]
        outputs = linear(hidden.flatten(0, 1), self.extra_blob(1), self.extra_blob(2)).tanh()
        return outputs.view_as(hidden), (last,)


class _UnrollRNN(torch.autograd.Function):
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
