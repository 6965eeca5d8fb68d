"""AdaGrad: rates that fall with the gradients each weight has seen."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.tensor_group import TensorGroup


def no_momentum(spec: OptimSpec) -> Iterator[Violation]:
    """Yield a violation if ``momentum`` is set for a rule that has none."""
    if spec.momentum:
        yield Violation(("momentum",), f"momentum cannot be used with {spec.type}", "leave it out")


def scale_by_root(gradients: list[Tensor], squares: list[Tensor], delta: float, rate: float) -> list[Tensor]:
    """Return ``rate · g / (√h + delta)``, in place of the gradients ``g``."""
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, delta)
    torch._foreach_div_(gradients, roots)
    torch._foreach_mul_(gradients, rate)
    return gradients


@UPDATE_RULES.register("AdaGrad")
class AdaGrad(UpdateRule):
    """AdaGrad: ``h ← h + g²;  w ← w - rate · g / (√h + delta)``."""

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from no_momentum(spec)
        yield from check_range(spec, "delta", above=0)

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        (squares,) = group.moments
        torch._foreach_addcmul_(squares, group.gradients, group.gradients)
        return scale_by_root(group.gradients, squares, self.spec.delta, step.rate)
