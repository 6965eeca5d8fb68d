"""AdaGrad: rates that fall with the gradients each weight has seen."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.errors import PrototxtError
from bpt.optim.rules.base import UPDATE_RULES, Step, UpdateRule
from bpt.optim.tensor_group import Batch
from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import Locate, check_number


def check_no_momentum(param: pb.SolverParameter, origin: Locate) -> None:
    """Raise a PrototxtError if ``momentum`` is set for a rule that has none."""
    if param.momentum:
        raise PrototxtError(f"momentum cannot be used with {param.type}; leave it out", origin("momentum"))


def scale_by_root(gradients: list[Tensor], squares: list[Tensor], delta: float, rate: float) -> list[Tensor]:
    """``rate · g / (√h + delta)``, in place of the gradients ``g``."""
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, delta)
    torch._foreach_div_(gradients, roots)
    torch._foreach_mul_(gradients, rate)
    return gradients


@UPDATE_RULES.register("AdaGrad")
class AdaGrad(UpdateRule):
    """``h ← h + g²;  w ← w - rate · g / (√h + delta)``"""

    @classmethod
    def check(cls, param: pb.SolverParameter, origin: Locate) -> None:
        check_no_momentum(param, origin)
        check_number(param, "delta", origin, above=0)

    def _compute(self, batch: Batch, step: Step) -> list[Tensor]:
        (squares,) = batch.moments
        torch._foreach_addcmul_(squares, batch.gradients, batch.gradients)
        return scale_by_root(batch.gradients, squares, self.param.delta, step.rate)
