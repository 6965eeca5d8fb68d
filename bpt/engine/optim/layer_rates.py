"""Rates by layer: each parameter blob is updated by a rate of its own, by the norms of its weights and its gradient.

LARC is NVIDIA's, LARS Intel's; both follow "Large Batch Training of Convolutional Networks" (You et al., 2017). Where
ranks hold slices of a blob, norms are those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.gradients import SUMMED, LearnableParam
from bpt.engine.optim.shard_info import ShardInfo
from bpt.engine.optim.tensor_group import TensorGroup
from bpt.engine.optim.tensor_layout import flat, split

LARC_POLICIES = ("scale", "clip")
RULES = ("SGD", "Nesterov")
CORRELATION_DECAY, MAX_TURN = 0.95, 0.9  # larc_turbo: the weight of past correlations; what a rate may lose


class Norms(NamedTuple):
    """The norms of a blob's weights, gradient and velocity, and the product of the latter two."""

    weights: float
    gradient: float
    velocity: float = 0.0
    product: float = 0.0

    @property
    def correlation(self) -> float:
        """The cosine of the angle between gradient and velocity; 0 if one of them is 0."""
        size = self.gradient * self.velocity
        return self.product / size if size else 0.0


def norms_of(
    parameters: Sequence[LearnableParam], group: TensorGroup, scale: float, shard_info: ShardInfo, turbo: bool
) -> list[Norms]:
    """Return the norms of parameters; a collective call (``ShardInfo.totals``).

    Args:
        group: their weights, gradients and first moments.
        scale: factor of the gradients, which have not been multiplied by it yet.
        turbo: whether the norms of the velocity are needed.
    """
    columns = [dots(group.weights, group.weights), dots(group.gradients, group.gradients)]
    if turbo:
        velocities = group.moments[0]
        columns += [dots(velocities, velocities), dots(group.gradients, velocities)]
    totals = summed(parameters, columns, shard_info)
    rows = ((weights, gradient, *(more or (0.0, 0.0))) for weights, gradient, *more in totals)
    return [Norms(w**0.5, abs(scale) * g**0.5, v**0.5, scale * product) for w, g, v, product in rows]


def summed(
    parameters: Sequence[LearnableParam], columns: Sequence[Tensor], shard_info: ShardInfo
) -> list[Sequence[float]]:
    """Return numbers of parameters, summed over the ranks that hold slices of them; a collective call.

    Args:
        columns: each has one number of this rank for each parameter.
    """
    rows = torch.stack(list(columns), 1).tolist()
    counted = {p.name: row for p, row in zip(parameters, rows, strict=True) if shard_info.counts(p)}
    totals = shard_info.totals(counted, len(columns))
    return [totals[parameter.name] for parameter in parameters]


def dots(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Return the product of each pair of tensors of one layout, float64 on the host; in pieces, as ``l2_norm``."""

    def dot(a: Tensor, b: Tensor) -> Tensor:
        pairs = zip(split(a, SUMMED), split(b, SUMMED), strict=True)
        return torch.stack([torch.dot(flat(x), flat(y)) for x, y in pairs]).double().sum()

    sums = [dot(a, b) for a, b in zip(left, right, strict=True)]
    return torch.stack(sums).cpu() if sums else torch.zeros(0, dtype=torch.float64)


LocalRate = Callable[[OptimSpec, float, float, float, Norms], float]
"""A function of the settings, the learning rate, the weight decay, the momentum and the norms: a blob's rate."""


def local_rate_of(spec: OptimSpec) -> LocalRate | None:
    """Return the function that gives each blob its rate; ``None``: all have the solver's, times ``lr_mult``."""
    return larc if spec.larc else lars if spec.local_lr_auto else None


def larc(spec: OptimSpec, rate: float, decay: float, momentum: float, norms: Norms) -> float:
    """Return LARC's rate: ``rate · r`` by the policy scale, ``min(rate, r)`` by the policy clip.

    Here r is (1 - momentum) · ``larc_eta`` · ‖w‖ / ‖g‖, or 1 if one of the norms is 0. The gradient g is without weight
    decay.
    """
    local = 1.0
    if norms.weights and norms.gradient:
        local = (1 - momentum) * spec.larc_eta * norms.weights / norms.gradient
    return rate * local if spec.larc_policy == "scale" else min(rate, local)


def lars(spec: OptimSpec, rate: float, decay: float, momentum: float, norms: Norms) -> float:
    """Return ``rate · local_gw_ratio · ‖w‖ / (‖g‖ + weight_decay · ‖w‖)``, or the rate if one of the norms is 0."""
    if not (norms.weights and norms.gradient):
        return rate
    return rate * spec.local_gw_ratio * norms.weights / (norms.gradient + decay * norms.weights)


@torch.no_grad()
def turned(correlation: Tensor, norms: Norms, iteration: int) -> float:
    """Return the factor of ``larc_turbo``, which is 1 before the third iteration.

    A rate is lower while gradients continue in the direction of the velocity, and higher when they turn back.

    Args:
        correlation: the moving average of the blob's correlation, in the blob's shape, as its moments.
    """
    if iteration > 1:
        correlation.mul_(CORRELATION_DECAY).add_((1 - CORRELATION_DECAY) * norms.correlation)
    return 1 - MAX_TURN * float(correlation.flatten()[0].item()) if correlation.numel() else 1.0


def violations(spec: OptimSpec) -> Iterator[Violation]:
    """Yield which of the settings make no sense."""
    for field in ("larc", "local_lr_auto"):
        if getattr(spec, field) and spec.type not in RULES:
            why = f"{field} gives each blob a rate of its own for SGD and Nesterov, not {spec.type}"
            yield Violation((field,), why, 'leave it out, or use type: "LAMB", which does the same for Adam')
    if spec.larc and spec.local_lr_auto:
        yield Violation(("local_lr_auto",), "larc and local_lr_auto both give each blob its rate", "set one")
    if spec.larc_policy not in LARC_POLICIES:
        known = ", ".join(LARC_POLICIES)
        yield Violation(("larc_policy",), f'unknown larc_policy "{spec.larc_policy}" (known: {known})')
    for field in ("larc_eta", "local_gw_ratio"):
        yield from check_range(spec, field, above=0)
