"""SGD: stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.rules.look_ahead import look_ahead
from bpt.engine.optim.tensor_group import TensorGroup


def fused_sgd(group: TensorGroup, momentum: float, decay: float, **options: Any) -> None:
    """Call torch's kernel, whose rate is 1, with ``options`` of its own."""
    numbers = {"momentum": momentum, "weight_decay": decay, "lr": 1.0} | options
    sgd(group.weights, group.gradients, list(group.moments[0]), fused=True, maximize=False, **numbers)


@UPDATE_RULES.register("SGD")
class SGD(UpdateRule):
    """SGD with momentum: ``v ← momentum · v + rate · g;  w ← w - v``.

    The rate is inside ``v``, unlike in torch: when it changes, earlier gradients keep their old rate.
    """

    corrects_delays = True

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        if step.late is not None:
            return look_ahead(group, step)
        (velocity,) = group.moments
        torch._foreach_mul_(velocity, step.momentum)
        torch._foreach_add_(velocity, group.gradients, alpha=step.rate)
        return velocity

    def _fuse(self, group: TensorGroup, step: UpdateNumbers) -> bool:
        # torch's v ← momentum · v + (1 - dampening) · (g + weight_decay · w) with the rate inside; its kernel
        # keeps no v without momentum.
        if not step.momentum or not step.scale or (step.decay and not self._l2) or step.late is not None:
            return False
        dampening = 1 - step.rate * step.scale
        fused_sgd(group, step.momentum, step.decay / step.scale, dampening=dampening, nesterov=False)
        return True
