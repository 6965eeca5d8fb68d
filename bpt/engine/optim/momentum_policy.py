"""Momentum and weight decay at an iteration, by ``momentum_policy`` and ``weight_decay_policy`` (NVIDIA's Caffe)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.lr_cycles import of_cycle, on_cycle
from bpt.engine.optim.lr_policy import warm_rate

MOMENTUM_POLICIES = ("fixed", "poly", "opt", "onecycle")
DECAY_POLICIES = ("fixed", "poly")


def momentum_at(spec: OptimSpec, iteration: int, rate: float) -> float:
    """Return the momentum at ``iteration``.

    ::

        fixed     momentum
        poly      momentum + (max_momentum - momentum) · (iteration / max_iter) ^ momentum_power
        opt       (1 - √rate / 2)², at most max_momentum, if that is set
        onecycle  max_momentum when the cycle's rate is lowest, momentum when it is highest

    While Intel's ``warmup_iter`` lets the rate rise, SGD's momentum is multiplied by the rate over that of the
    iteration before, which the velocity holds ("Accurate, Large Minibatch SGD", Goyal et al., 2017, remark 3). If
    that is 0, Intel's Caffe has NaN; here the momentum does not change.

    Args:
        rate: the learning rate.
    """
    momentum = spec.momentum
    if spec.momentum_policy == "poly":
        momentum += (spec.max_momentum - momentum) * math.pow(iteration / spec.max_iter, spec.momentum_power)
    elif spec.momentum_policy == "opt":
        momentum = (1 - math.sqrt(rate) / 2) ** 2
        if "max_momentum" in spec.given:
            momentum = min(momentum, spec.max_momentum)
    elif spec.momentum_policy == "onecycle":
        momentum = on_cycle(spec, iteration, (spec.max_momentum, momentum, spec.max_momentum))
    if iteration < spec.warmup_iter and spec.type == "SGD" and (before := warm_rate(spec, iteration - 1)):
        momentum *= rate / before
    return momentum


def weight_decay_at(spec: OptimSpec, iteration: int) -> float:
    """Return the weight decay at ``iteration``, before any ``decay_mult``.

    ``poly`` leads from ``weight_decay`` to ``max_weight_decay`` as ``(iteration / max_iter) ^ weight_decay_power`` or,
    if that is not set, from 0 to ``weight_decay``.
    """
    if spec.weight_decay_policy != "poly":
        return spec.weight_decay
    start, end = (spec.weight_decay, spec.max_weight_decay) if spec.max_weight_decay else (0.0, spec.weight_decay)
    return start + (end - start) * math.pow(iteration / spec.max_iter, spec.weight_decay_power)


def violations(spec: OptimSpec) -> Iterator[Violation]:
    """Yield why there is no momentum or weight decay at some iterations."""
    for field, known in (("momentum_policy", MOMENTUM_POLICIES), ("weight_decay_policy", DECAY_POLICIES)):
        value = getattr(spec, field)
        if value not in known:
            yield Violation((field,), f'unknown {field} "{value}" (known: {", ".join(known)})')
        elif value in ("poly", "onecycle") and spec.max_iter < 1:
            yield Violation((field,), f'max_iter is {spec.max_iter}; {field} "{value}" must know how long it takes')
    yield from check_range(spec, "max_momentum", least=0, below=1)
    for field in ("momentum_power", "weight_decay_power", "max_weight_decay"):
        yield from check_range(spec, field, least=0)
    if spec.momentum_policy == "onecycle":
        yield from of_cycle(spec)
    if spec.momentum_policy == "opt" and spec.base_lr >= 4:
        yield Violation(("base_lr",), f'base_lr is {spec.base_lr:g}; momentum_policy "opt" wants it below 4')
