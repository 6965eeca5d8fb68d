"""The learning rate at an iteration: Caffe's seven policies (``SGDSolver::GetLearningRate``), and how it warms up.

Iterations count from 0. The rate depends only on the iteration, so a resumed run needs no state for it;
``current_step`` is saved because Caffe saves it. The exception is the policy that follows the loss (``Rates``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from bpt.base.errors import UserError
from bpt.base.registry import Registry
from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec

LOG = logging.getLogger("bpt")


class Policy:
    """One ``lr_policy``; ``needs`` are the fields that must be set, each with the least value that makes sense."""

    needs: ClassVar[Mapping[str, float | None]] = {}
    follows_loss: ClassVar[bool] = False
    starts_from_base_lr: ClassVar[bool] = True

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        """Return the learning rate at ``iteration``; of a policy that follows the loss, before the first step."""
        raise NotImplementedError

    @classmethod
    def steps(cls, spec: OptimSpec, iteration: int) -> int:
        """Return how many times the rate has been lowered at ``iteration``; 0 for a policy without steps."""
        return 0

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        """Yield which fields are missing or make no sense."""
        for field, least in cls.needs.items():
            yield from _missing(spec, field)
            yield from check_range(spec, field, least=least)


POLICIES: Registry[type[Policy]] = Registry(
    "lr_policy",
    {
        "bpt.engine.optim.lr_stages": ("multifixed", "plateau"),
        "bpt.engine.optim.lr_cycles": ("cosine", "onecycle"),
    },
)


def learning_rate(spec: OptimSpec, iteration: int, step: int = 0) -> float:
    """Return the learning rate at ``iteration``, before any ``lr_mult``.

    At first it may rise to ``base_lr``: as the square of the iteration under NVIDIA's ``rampup_interval``, in a
    straight line under Intel's ``warmup_iter``. The policy then continues as if it had been there from the start.
    ``min_lr`` is the lowest rate of all (NVIDIA).

    Args:
        step: how many steps a policy that follows the loss has taken.
    """
    if iteration < spec.rampup_interval:
        rate = spec.rampup_lr + (spec.base_lr - spec.rampup_lr) * (iteration / spec.rampup_interval) ** 2
    elif iteration < spec.warmup_iter:
        rate = warm_rate(spec, iteration)
    else:
        rate = POLICIES[spec.lr_policy].rate(spec, iteration) * _power(spec.gamma, step)
    return max(rate, spec.min_lr)


def warm_rate(spec: OptimSpec, iteration: int) -> float:
    """Return the rate while it rises in a straight line for ``warmup_iter`` iterations."""
    done = max(iteration, 0) / spec.warmup_iter
    return done * spec.base_lr + (1 - done) * spec.warmup_start_lr


def current_step(spec: OptimSpec, iteration: int) -> int:
    """Return the steps that the policies step and multistep have taken at ``iteration``; 0 for the others.

    A solver state after n iterations holds the step of iteration n - 1, the last one whose rate was used.
    """
    return POLICIES[spec.lr_policy].steps(spec, max(iteration, 0))


def log_step(spec: OptimSpec, iteration: int) -> None:
    """Log that the policy multistep takes a step at ``iteration``, if it does, in Caffe's words."""
    if spec.lr_policy == "multistep" and iteration in spec.stepvalue:
        LOG.info("MultiStep Status: Iteration %d, step = %d", iteration, current_step(spec, iteration))


def violations(spec: OptimSpec) -> Iterator[Violation]:
    """Yield why the policy cannot give a rate at any iteration.

    Caffe reads a field that is not set as 0 and trains with the resulting rate.
    """
    if not spec.lr_policy:
        yield Violation(("lr_policy",), "lr_policy is not set", f"use one of {', '.join(POLICIES)}")
        return
    try:
        policy = POLICIES[spec.lr_policy]
    except UserError as error:
        yield Violation(("lr_policy",), str(error))
        return
    rises = spec.rampup_interval > 0 or spec.warmup_iter > 0
    if policy.starts_from_base_lr or rises:
        yield from _missing(spec, "base_lr")
    yield from check_range(spec, "base_lr", least=0)
    for field in ("rampup_interval", "rampup_lr", "warmup_iter", "warmup_start_lr", "min_lr"):
        yield from check_range(spec, field, least=0)
    if spec.rampup_interval > 0 and spec.warmup_iter > 0:
        yield Violation(("warmup_iter",), "rampup_interval and warmup_iter both say how the rate rises", "set one")
    yield from policy.violations(spec)


def falls(spec: OptimSpec) -> Iterator[Violation]:
    """Yield a violation if ``min_lr`` is above ``base_lr``."""
    if spec.min_lr > spec.base_lr:
        why = f'min_lr is {spec.min_lr:g}; lr_policy "{spec.lr_policy}" falls to it from base_lr, {spec.base_lr:g}'
        yield Violation(("min_lr",), why)


def _missing(spec: OptimSpec, field: str) -> Iterator[Violation]:
    if field not in spec.given:
        yield Violation(("lr_policy",), f'{field} is not set; lr_policy "{spec.lr_policy}" needs it')


def _power(base: float, exponent: float) -> float:
    """Return ``base ** exponent``, which is infinite beyond the range of a double, as in C."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf


@POLICIES.register("fixed")
class Fixed(Policy):
    """The policy ``base_lr``."""

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr


@POLICIES.register("step")
class StepPolicy(Policy):
    """The policy ``base_lr · gamma ^ floor(iteration / stepsize)``."""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "stepsize": 1}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr * _power(spec.gamma, cls.steps(spec, iteration))

    @classmethod
    def steps(cls, spec: OptimSpec, iteration: int) -> int:
        return iteration // spec.stepsize


@POLICIES.register("multistep")
class MultiStep(StepPolicy):
    """The policy ``base_lr · gamma ^ (number of stepvalue that are reached)``."""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0}

    @classmethod
    def steps(cls, spec: OptimSpec, iteration: int) -> int:
        return sum(iteration >= value for value in spec.stepvalue)

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from super().violations(spec)
        if not spec.stepvalue:
            yield Violation(("lr_policy",), 'stepvalue is not set; lr_policy "multistep" needs it')
        for index, (before, value) in enumerate(zip((-1, *spec.stepvalue), spec.stepvalue, strict=False)):
            if value <= before:
                problem = f"must be above the one before, {before}" if index else "must be at least 0"
                yield Violation(("stepvalue", index), f"stepvalue is {value}; it {problem}")


@POLICIES.register("exp")
class ExpPolicy(Policy):
    """The policy ``base_lr · gamma ^ iteration``."""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr * _power(spec.gamma, iteration)


@POLICIES.register("inv")
class Inv(Policy):
    """The policy ``base_lr · (1 + gamma · iteration) ^ -power``."""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "power": None}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr * _power(1 + spec.gamma * iteration, -spec.power)


@POLICIES.register("poly")
class Poly(Policy):
    """The policy ``min_lr + (base_lr - min_lr) · (1 - iteration / max_iter) ^ power``, where ``min_lr`` is 0 if unset.

    Beyond ``max_iter`` the rate is ``min_lr``, where Caffe's may be NaN.
    """

    needs: ClassVar[Mapping[str, float | None]] = {"power": 0, "max_iter": 1}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        left = _power(max(1 - iteration / spec.max_iter, 0.0), spec.power)
        return spec.min_lr + (spec.base_lr - spec.min_lr) * left

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from super().violations(spec)
        yield from falls(spec)


@POLICIES.register("sigmoid")
class SigmoidPolicy(Policy):
    """The policy ``base_lr / (1 + exp(-gamma · (iteration - stepsize)))``, which rises to ``base_lr``."""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "stepsize": 1}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        exponent = -spec.gamma * (iteration - spec.stepsize)
        return spec.base_lr / (1 + math.exp(min(exponent, 700.0)))  # e^710 is more than a double holds
