"""Adam: momentum, with rates from the size of past gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.tensor_group import TensorGroup

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

    def _remember(self, group: TensorGroup, step: UpdateNumbers) -> None:
        """Update the moments."""
        means, squares = group.moments
        torch._foreach_mul_(means, step.momentum)
        torch._foreach_add_(means, group.gradients, alpha=1 - step.momentum)
        torch._foreach_mul_(squares, self.spec.momentum2)
        torch._foreach_addcmul_(squares, group.gradients, group.gradients, value=1 - self.spec.momentum2)

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        self._remember(group, step)
        means, squares = group.moments
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, self.spec.delta)
        update = torch._foreach_div(means, roots)
        torch._foreach_mul_(update, self._rate(step))
        return list(update)

    def _fuse(self, group: TensorGroup, step: UpdateNumbers) -> bool:
        if not step.scale or (step.decay and not self._l2):
            return False
        if step.scale != 1 and group.weights[0].dtype != torch.float32:  # torch takes grad_scale as float32 only
            return False
        device = group.weights[0].device
        scale = None if step.scale == 1 else torch.full((), 1 / step.scale, dtype=torch.float32, device=device)
        late = torch.full((), _LATE, dtype=torch.float32, device=device)
        self._call(adam, group, step, lr=self._rate(step), state_steps=[late] * len(group.weights), grad_scale=scale)
        return True

    def _call(self, kernel: Callable[..., None], group: TensorGroup, step: UpdateNumbers, **options: Any) -> None:
        """Call a kernel of torch's with ``options`` of its own."""
        kernel(
            group.weights,
            group.gradients,
            *group.moments,
            max_exp_avg_sqs=[],
            fused=True,
            amsgrad=False,
            beta1=step.momentum,
            beta2=self.spec.momentum2,
            weight_decay=step.decay,
            eps=self.spec.delta,
            maximize=False,
            **options,
        )
