"""LSTM: a recurrent layer with long short-term memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.recurrent import Recurrent, arity_of


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
        outputs, *last = _Unroll.apply(inputs, self.extra_blob(0), markers, *first)  # type: ignore[no-untyped-call]
        return outputs, tuple(last)


class _Unroll(torch.autograd.Function):
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
        into_cells = o * (1 - tanhs * tanhs)  # what a diff of h is for c
        # What a diff of c, or for o of h, is for the sums that the gates are made of.
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
