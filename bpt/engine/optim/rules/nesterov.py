"""Nesterov: SGD that looks ahead along its momentum."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.rules.look_ahead import look_ahead
from bpt.engine.optim.rules.sgd import fused_sgd
from bpt.engine.optim.tensor_group import TensorGroup


@UPDATE_RULES.register("Nesterov")
class Nesterov(UpdateRule):
    """Nesterov's momentum: ``v' = momentum · v + rate · g;  w ← w - ((1 + momentum) · v' - momentum · v)``."""

    corrects_delays = True

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        return look_ahead(group, step)  # rate · g + momentum · v', which needs no copy of the old v

    def _fuse(self, group: TensorGroup, step: UpdateNumbers) -> bool:
        # torch's v ← momentum · v + g;  w ← w - (g + momentum · v), with the rate taken into g beforehand.
        factor = step.rate * step.scale
        if not step.momentum or not factor or (step.decay and not self._l2) or step.late:
            return False
        if group.weights[0].dtype != torch.float32:  # torch takes grad_scale as float32 only
            return False
        scale = torch.full((), 1 / factor, dtype=torch.float32, device=group.weights[0].device)
        fused_sgd(group, step.momentum, step.rate * step.decay, grad_scale=scale, dampening=0.0, nesterov=True)
        return True
