"""SGD: stochastic gradient descent with momentum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.tensor_group import Batch


@UPDATE_RULES.register("SGD")
class SGD(UpdateRule):
    """SGD with momentum: ``v ← momentum · v + rate · g;  w ← w - v``.

    The rate is inside ``v``, unlike in torch: when it changes, earlier gradients keep their old rate.
    """

    def _compute(self, batch: Batch, step: UpdateNumbers) -> list[Tensor]:
        (velocity,) = batch.moments
        torch._foreach_mul_(velocity, step.momentum)
        torch._foreach_add_(velocity, batch.gradients, alpha=step.rate)
        return velocity

    def _fuse(self, batch: Batch, step: UpdateNumbers) -> bool:
        # torch's v ← momentum · v + (1 - dampening) · (g + weight_decay · w) with the rate inside; its kernel
        # keeps no v without momentum.
        if not step.momentum or not step.scale or (step.decay and not self._l2):
            return False
        sgd(
            batch.weights,
            batch.gradients,
            list(batch.moments[0]),
            fused=True,
            weight_decay=step.decay / step.scale,
            momentum=step.momentum,
            lr=1.0,
            dampening=1 - step.rate * step.scale,
            nesterov=False,
            maximize=False,
        )
        return True
