"""Adam: momentum, with rates from the size of past gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim.adam import adam

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.tensor_group import Batch

_LATE = 1e12  # an iteration at which torch's own correction of the moments is 1, and to which adding 1 changes nothing


@UPDATE_RULES.register("Adam")
class Adam(UpdateRule):
    """Adam, with ``momentum`` m, ``momentum2`` n and t = iteration + 1.

    ::

    a ← m · a + (1 - m) · g
    b ← n · b + (1 - n) · g²
    w ← w - rate · √(1 - nᵗ) / (1 - mᵗ) · a / (√b + delta)
    """

    moments = 2

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from check_range(spec, "momentum2", least=0, below=1)
        yield from check_range(spec, "delta", above=0)

    def _rate(self, step: UpdateNumbers) -> float:
        time = step.iteration + 1
        return step.rate * math.sqrt(1 - self.spec.momentum2**time) / (1 - step.momentum**time)

    def _remember(self, batch: Batch, step: UpdateNumbers) -> None:
        """Update the moments."""
        means, squares = batch.moments
        torch._foreach_mul_(means, step.momentum)
        torch._foreach_add_(means, batch.gradients, alpha=1 - step.momentum)
        torch._foreach_mul_(squares, self.spec.momentum2)
        torch._foreach_addcmul_(squares, batch.gradients, batch.gradients, value=1 - self.spec.momentum2)

    def _compute(self, batch: Batch, step: UpdateNumbers) -> list[Tensor]:
        self._remember(batch, step)
        means, squares = batch.moments
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, self.spec.delta)
        update = torch._foreach_div(means, roots)
        torch._foreach_mul_(update, self._rate(step))
        return list(update)

    def _fuse(self, batch: Batch, step: UpdateNumbers) -> bool:
        if not step.scale or (step.decay and not self._l2):
            return False
        means, squares = batch.moments
        if step.scale != 1 and batch.weights[0].dtype != torch.float32:  # torch takes grad_scale as float32 only
            return False
        device = batch.weights[0].device
        scale = None if step.scale == 1 else torch.full((), 1 / step.scale, dtype=torch.float32, device=device)
        late = torch.full((), _LATE, dtype=torch.float32, device=device)
        adam(
            batch.weights,
            batch.gradients,
            means,
            squares,
            max_exp_avg_sqs=[],
            state_steps=[late] * len(batch.weights),
            fused=True,
            grad_scale=scale,
            amsgrad=False,
            beta1=step.momentum,
            beta2=self.spec.momentum2,
            lr=self._rate(step),
            weight_decay=step.decay,
            eps=self.spec.delta,
            maximize=False,
        )
        return True
