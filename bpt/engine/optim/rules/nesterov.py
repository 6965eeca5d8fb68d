"""Nesterov: SGD that looks ahead along its momentum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.tensor_group import Batch


@UPDATE_RULES.register("Nesterov")
class Nesterov(UpdateRule):
    """Nesterov's momentum: ``v' = momentum · v + rate · g;  w ← w - ((1 + momentum) · v' - momentum · v)``."""

    def _compute(self, batch: Batch, step: UpdateNumbers) -> list[Tensor]:
        # The update is rate · g + momentum · v', the same without a copy of the old v.
        (velocity,) = batch.moments
        torch._foreach_mul_(velocity, step.momentum)
        torch._foreach_add_(velocity, batch.gradients, alpha=step.rate)
        torch._foreach_mul_(batch.gradients, step.rate)
        torch._foreach_add_(batch.gradients, velocity, alpha=step.momentum)
        return batch.gradients

    def _fuse(self, batch: Batch, step: UpdateNumbers) -> bool:
        # torch's v ← momentum · v + g;  w ← w - (g + momentum · v), with the rate taken into g beforehand.
        factor = step.rate * step.scale
        if not step.momentum or not factor or (step.decay and not self._l2):
            return False
        if batch.weights[0].dtype != torch.float32:  # torch takes grad_scale as float32 only
            return False
        sgd(
            batch.weights,
            batch.gradients,
            list(batch.moments[0]),
            fused=True,
            grad_scale=torch.full((), 1 / factor, dtype=torch.float32, device=batch.weights[0].device),
            weight_decay=step.rate * step.decay,
            momentum=step.momentum,
            lr=1.0,
            dampening=0.0,
            nesterov=True,
            maximize=False,
        )
        return True
