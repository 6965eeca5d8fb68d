"""RMSProp: AdaGrad with a fading memory."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.optim.rules.adagrad import check_no_momentum, scale_by_root
from bpt.optim.rules.base import UPDATE_RULES, Step, UpdateRule
from bpt.optim.tensor_group import Batch
from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import Locate, check_number


@UPDATE_RULES.register("RMSProp")
class RMSProp(UpdateRule):
    """``h ← rms_decay · h + (1 - rms_decay) · g²;  w ← w - rate · g / (√h + delta)``"""

    @classmethod
    def check(cls, param: pb.SolverParameter, origin: Locate) -> None:
        check_no_momentum(param, origin)
        check_number(param, "rms_decay", origin, least=0, below=1)
        check_number(param, "delta", origin, above=0)

    def _compute(self, batch: Batch, step: Step) -> list[Tensor]:
        (squares,) = batch.moments
        decay = self.param.rms_decay
        torch._foreach_mul_(squares, decay)
        torch._foreach_addcmul_(squares, batch.gradients, batch.gradients, value=1 - decay)
        return scale_by_root(batch.gradients, squares, self.param.delta, step.rate)
