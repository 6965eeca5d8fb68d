"""AdamW: Adam whose weight decay is no part of the gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from bpt.engine.optim.rules.adam import Adam
from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers
from bpt.engine.optim.tensor_group import TensorGroup


@UPDATE_RULES.register("AdamW")
class AdamW(Adam):
    """AdamW, as in torch ("Decoupled Weight Decay Regularization", Loshchilov and Hutter, 2019, algorithm 2).

    With ``momentum`` m, ``momentum2`` n and t = iteration + 1::

        a ← m · a + (1 - m) · g
        b ← n · b + (1 - n) · g²
        w ← w - rate · (a / (1 - mᵗ) / (√(b / (1 - nᵗ)) + delta) + weight_decay · w)

    Unlike in Caffe's Adam, ``delta`` is added to the corrected root. Under ``regularization_type: "L1"`` the sign of w
    replaces the last w.
    """

    decouples_decay = True

    def _direction(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        """Update the moments; return what is multiplied by the rate."""
        self._remember(group, step)
        means, squares = group.moments
        time = step.iteration + 1
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, math.sqrt(1 - self.spec.momentum2**time))
        torch._foreach_add_(roots, self.spec.delta)
        direction = torch._foreach_div(means, roots)
        torch._foreach_div_(direction, 1 - step.momentum**time)
        if step.decay:
            torch._foreach_add_(direction, self._toward(group), alpha=step.decay)
        return list(direction)

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        update = self._direction(group, step)
        torch._foreach_mul_(update, step.rate)
        return update

    def _fuse(self, group: TensorGroup, step: UpdateNumbers) -> bool:
        if step.scale != 1 or (step.decay and not self._l2):
            return False
        time = torch.full((), step.iteration, dtype=torch.float32, device=group.weights[0].device)  # torch adds 1
        self._call(adamw, group, step, lr=step.rate, state_steps=[time.clone() for _ in group.weights])
        return True
