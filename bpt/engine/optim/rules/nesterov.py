"""Nesterov: SGD that looks ahead along its momentum."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.rules.sgd import fused_sgd
from bpt.engine.optim.tensor_group import TensorGroup


@UPDATE_RULES.register("Nesterov")
class Nesterov(UpdateRule):
    """Nesterov's momentum: ``v' = momentum · v + rate · g;  w ← w - ((1 + momentum) · v' - momentum · v)``."""

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        # The update is rate · g + momentum · v', the same without a copy of the old v.
        (velocity,) = group.moments
        torch._foreach_mul_(velocity, step.momentum)
        torch._foreach_add_(velocity, group.gradients, alpha=step.rate)
        torch._foreach_mul_(group.gradients, step.rate)
        torch._foreach_add_(group.gradients, velocity, alpha=step.momentum)
        return group.gradients

    def _fuse(self, group: TensorGroup, step: UpdateNumbers) -> bool:
        # torch's v ← momentum · v + g;  w ← w - (g + momentum · v), with the rate taken into g beforehand.
        factor = step.rate * step.scale
        if not step.momentum or not factor or (step.decay and not self._l2):
            return False
        if group.weights[0].dtype != torch.float32:  # torch takes grad_scale as float32 only
            return False
        scale = torch.full((), 1 / factor, dtype=torch.float32, device=group.weights[0].device)
        fused_sgd(group, step.momentum, step.rate * step.decay, grad_scale=scale, dampening=0.0, nesterov=True)
        return True
