"""Momentum that looks ahead: by one iteration (Nesterov), or by as many as its gradients are late, and one more.

With momentum m, rate r and the gradient g of τ iterations ago, an update of weights w with velocity v computes ::

    n = 1 - (1 - m) / (τ + 1)
    v' = n · v + r / (τ + 1) · g
    w ← w - (1 + n + … + n^τ) · r / (τ + 1) · g - n^(τ+1) · v'

With τ = 0 this is Nesterov's momentum as Caffe has it. In any case a gradient moves the weights by ``r · g / (1 - m)``
in the end. It is the idea of Ajanthan et al. (2025), *Nesterov Method for Asynchronous Pipeline Parallel Optimization*,
in two parts:

- *The momentum is near 1, and gradients count 1 - n.* They are late by little then, measured by the iterations 1 / (1 -
  n) over which they act. The paper sets n = 0.99 for all stages. Here n follows from the solver's momentum, and from
  the delay of the stage. (Caffe's rate r has the factor 1 - m in it.)
- *Weights look ahead.* They are not where the updates v lead, but where momentum alone would carry these in τ + 1
  further iterations: ``w = x - (n + … + n^(τ+1)) · v`` with ``x ← x - v'``. A gradient is computed at w, and applied τ
  iterations later. So it is computed near the point at which Nesterov's momentum will want it then. In the paper the
  look-ahead is that of one iteration, ``n · v``, for any delay.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.engine.optim.rules.base import UpdateNumbers
from bpt.engine.optim.tensor_group import TensorGroup


def look_ahead(group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
    """Update the velocities; return what to subtract from the weights. Gradients are overwritten."""
    (velocity,) = group.moments
    late = step.late or 0
    ahead = late + 1
    momentum, rate = step.momentum + (1 - step.momentum) * late / ahead, step.rate / ahead
    torch._foreach_mul_(velocity, momentum)
    torch._foreach_add_(velocity, group.gradients, alpha=rate)
    torch._foreach_mul_(group.gradients, rate * sum(momentum**power for power in range(ahead)))
    torch._foreach_add_(group.gradients, velocity, alpha=momentum**ahead)
    return group.gradients
