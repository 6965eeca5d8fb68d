"""LAMB: AdamW with a rate for each parameter blob, for large batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.engine.optim.layer_rates import dots, summed
from bpt.engine.optim.rules.adamw import AdamW
from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateNumbers
from bpt.engine.optim.tensor_group import TensorGroup


@UPDATE_RULES.register("LAMB")
class Lamb(AdamW):
    """LAMB: ``w ← w - rate · ‖w‖ / ‖u‖ · u``, where u is what AdamW multiplies by the rate.

    It is algorithm 2, with φ the identity, of "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes"
    (You et al., 2020). The factor is 1 where one of the norms is 0. Both are norms of a whole blob, also where ranks
    hold slices of it.
    """

    needs_norms = True

    def _update_groups(self, common: UpdateNumbers, members: Sequence[int]) -> None:
        indices: list[int] = []
        weights: list[Tensor] = []
        directions: list[Tensor] = []
        rates: list[float] = []
        for (lr_mult, decay_mult), alike in self._groups(members):
            step = common.of(lr_mult, decay_mult)
            group = self._group_of(alike)
            if step.scale != 1:
                torch._foreach_mul_(group.gradients, step.scale)
            directions += self._direction(group, step)
            weights += group.weights
            rates += [step.rate] * len(alike)
            indices += alike
        columns = [dots(weights, weights), dots(directions, directions)]
        totals = summed([self.parameters[index] for index in indices], columns, self.shard_info)
        for place, (index, (of_weights, of_direction)) in enumerate(zip(indices, totals, strict=True)):
            ratio = (of_weights / of_direction) ** 0.5 if of_weights and of_direction else 1.0
            update = directions[place].mul_(rates[place] * ratio)
            weights[place].sub_(update)
            if self.updates is not None:
                self.updates[index] = update

    def _fuse(self, group: TensorGroup, step: UpdateNumbers) -> bool:
        return False
