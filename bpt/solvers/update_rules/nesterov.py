"""Nesterov: SGD that looks ahead along its momentum."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.solvers.update_rules.base import UPDATE_RULES, Step, UpdateRule
from bpt.solvers.update_rules.batch import Batch


@UPDATE_RULES.register("Nesterov")
class Nesterov(UpdateRule):
    """``v' = momentum · v + rate · g;  w ← w - ((1 + momentum) · v' - momentum · v)``"""

    def _compute(self, batch: Batch, step: Step) -> list[Tensor]:
        # The update is rate · g + momentum · v', the same without a copy of the old v.
        (velocity,) = batch.moments
        torch._foreach_mul_(velocity, self.param.momentum)
        torch._foreach_add_(velocity, batch.gradients, alpha=step.rate)
        torch._foreach_mul_(batch.gradients, step.rate)
        torch._foreach_add_(batch.gradients, velocity, alpha=self.param.momentum)
        return batch.gradients
