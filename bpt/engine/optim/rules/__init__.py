"""The update rules, one file each, registered under Caffe's names and imported on demand; ``make_rule`` makes one."""

from __future__ import annotations

from collections.abc import Iterator

from bpt.base.errors import UserError
from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim import averages, layer_rates, momentum_policy
from bpt.engine.optim.gradients import LearnableParam, learnable_params
from bpt.engine.optim.rules.base import UPDATE_RULES, UpdateRule, num_moments
from bpt.engine.optim.weight_slices import NO_SLICES, WeightSlices
from bpt.nn.net import Net

__all__ = ["UPDATE_RULES", "LearnableParam", "UpdateRule", "learnable_params", "make_rule", "num_moments", "violations"]

REGULARIZATIONS = ("L1", "L2")


def make_rule(spec: OptimSpec, net: Net, keep_updates: bool = False, slices: WeightSlices = NO_SLICES) -> UpdateRule:
    """Return the update rule that ``spec.type`` names, for the parameters of ``net``, with an empty history.

    Args:
        keep_updates: keep the last update of each parameter for inspection.
        slices: what this rank updates of those parameters that ranks divide.

    Raises:
        PrototxtError: ``violations`` finds something.
    """
    for violation in violations(spec):
        raise violation.error(lambda *_: None)
    return UPDATE_RULES[spec.type](spec, learnable_params(net, slices), keep_updates)


def violations(spec: OptimSpec) -> Iterator[Violation]:
    """Yield why there is no such rule, or which of its numbers make no sense."""
    try:
        rule = UPDATE_RULES[spec.type]
    except UserError as error:
        yield Violation(("type",), str(error))
        return
    if spec.regularization_type not in REGULARIZATIONS:
        yield Violation(
            ("regularization_type",),
            f'unknown regularization_type "{spec.regularization_type}" (known: {", ".join(REGULARIZATIONS)})',
        )
    yield from check_range(spec, "momentum", least=0, below=1)
    yield from check_range(spec, "weight_decay", least=0)
    yield from check_range(spec, "clip_gradients")
    yield from check_range(spec, "iter_size", least=1)
    yield from rule.violations(spec)
    yield from momentum_policy.violations(spec)
    yield from layer_rates.violations(spec)
    yield from averages.violations(spec)
