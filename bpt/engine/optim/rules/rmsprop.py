"""RMSProp: AdaGrad with a fading memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.rules.adagrad import no_momentum, scale_by_root
from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers, UpdateRule
from bpt.engine.optim.tensor_group import TensorGroup


@UPDATE_RULES.register("RMSProp")
class RMSProp(UpdateRule):
    """RMSProp: ``h ← rms_decay · h + (1 - rms_decay) · g²;  w ← w - rate · g / (√h + delta)``."""

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from no_momentum(spec)
        yield from check_range(spec, "rms_decay", least=0, below=1)
        yield from check_range(spec, "delta", above=0)

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        (squares,) = group.moments
        decay = self.spec.rms_decay
        torch._foreach_mul_(squares, decay)
        torch._foreach_addcmul_(squares, group.gradients, group.gradients, value=1 - decay)
        return scale_by_root(group.gradients, squares, self.spec.delta, step.rate)
