"""AdaDelta: rates from the sizes of past gradients and of past updates."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.tensor_group import TensorGroup


@UPDATE_RULES.register("AdaDelta")
class AdaDelta(UpdateRule):
    """AdaDelta, with ``momentum`` m as the weight of the past.

    ::

    h ← m · h + (1 - m) · g²
    u = g · √((k + delta) / (h + delta))
    k ← m · k + (1 - m) · u²
    w ← w - rate · u
    """

    moments = 2

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from check_range(spec, "delta", above=0)

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        update, (gradient_squares, update_squares) = group.gradients, group.moments
        _remember(gradient_squares, update, step.momentum)
        ratio = torch._foreach_add(update_squares, self.spec.delta)
        torch._foreach_div_(ratio, torch._foreach_add(gradient_squares, self.spec.delta))
        torch._foreach_sqrt_(ratio)
        torch._foreach_mul_(update, ratio)
        _remember(update_squares, update, step.momentum)
        torch._foreach_mul_(update, step.rate)
        return update


def _remember(squares: list[Tensor], values: list[Tensor], momentum: float) -> None:
    torch._foreach_mul_(squares, momentum)
    torch._foreach_addcmul_(squares, values, values, value=1 - momentum)
