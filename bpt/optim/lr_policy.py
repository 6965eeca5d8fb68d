"""The learning rate at an iteration, by Caffe's seven policies (``SGDSolver::GetLearningRate``).

Iterations count from 0. The rate depends on the iteration alone, so a resumed run needs no state for it;
``current_step`` is saved because Caffe saves it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from bpt.errors import UserError
from bpt.optim.optim_spec import OptimSpec
from bpt.registry import Registry
from bpt.violation import Violation, beyond

LOG = logging.getLogger("bpt")


class Policy:
    """One ``lr_policy``. ``needs``: the fields that must be set, each with the least value that makes sense."""

    needs: ClassVar[Mapping[str, float | None]] = {}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        """The learning rate at ``iteration``."""
        raise NotImplementedError

    @classmethod
    def steps(cls, spec: OptimSpec, iteration: int) -> int:
        """How many times the rate has been lowered at ``iteration``; 0 for a policy without steps."""
        return 0

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        """What is missing or makes no sense."""
        for field, least in cls.needs.items():
            yield from _missing(spec, field)
            yield from beyond(spec, field, least=least)


POLICIES: Registry[type[Policy]] = Registry("lr_policy")


def learning_rate(spec: OptimSpec, iteration: int) -> float:
    """The learning rate at ``iteration``, before any ``lr_mult``."""
    return POLICIES[spec.lr_policy].rate(spec, iteration)


def current_step(spec: OptimSpec, iteration: int) -> int:
    """Steps that the policies step and multistep have taken at ``iteration``; 0 for the others.

    A solver state after n iterations holds the step of iteration n - 1, the last one whose rate was asked for.
    """
    return POLICIES[spec.lr_policy].steps(spec, max(iteration, 0))


def log_step(spec: OptimSpec, iteration: int) -> None:
    """Log that the policy multistep takes a step at ``iteration``, if it does, in Caffe's words."""
    if spec.lr_policy == "multistep" and iteration in spec.stepvalue:
        LOG.info("MultiStep Status: Iteration %d, step = %d", iteration, current_step(spec, iteration))


def violations(spec: OptimSpec) -> Iterator[Violation]:
    """Why the policy cannot give a rate at any iteration.

    Caffe takes a field that is not set as 0 and trains with the rate that comes of it.
    """
    if not spec.lr_policy:
        yield Violation(("lr_policy",), "lr_policy is not set", f"use one of {', '.join(POLICIES)}")
        return
    try:
        policy = POLICIES[spec.lr_policy]
    except UserError as error:
        yield Violation(("lr_policy",), str(error))
        return
    yield from _missing(spec, "base_lr")
    yield from beyond(spec, "base_lr", least=0)
    yield from policy.violations(spec)


def _missing(spec: OptimSpec, field: str) -> Iterator[Violation]:
    if field not in spec.given:
        yield Violation(("lr_policy",), f'{field} is not set; lr_policy "{spec.lr_policy}" needs it')


def _power(base: float, exponent: float) -> float:
    """``base ** exponent``, infinite rather than an error where a double ends, as in C."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf


@POLICIES.register("fixed")
class Fixed(Policy):
    """``base_lr``"""

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr


@POLICIES.register("step")
class Step(Policy):
    """``base_lr · gamma ^ floor(iteration / stepsize)``"""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "stepsize": 1}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr * _power(spec.gamma, cls.steps(spec, iteration))

    @classmethod
    def steps(cls, spec: OptimSpec, iteration: int) -> int:
        return iteration // spec.stepsize


@POLICIES.register("multistep")
class MultiStep(Step):
    """``base_lr · gamma ^ (how many of stepvalue are reached)``"""

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
class Exp(Policy):
    """``base_lr · gamma ^ iteration``"""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr * _power(spec.gamma, iteration)


@POLICIES.register("inv")
class Inv(Policy):
    """``base_lr · (1 + gamma · iteration) ^ -power``"""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "power": None}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr * _power(1 + spec.gamma * iteration, -spec.power)


@POLICIES.register("poly")
class Poly(Policy):
    """``base_lr · (1 - iteration / max_iter) ^ power``; 0 beyond ``max_iter``, where Caffe's may be NaN."""

    needs: ClassVar[Mapping[str, float | None]] = {"power": 0, "max_iter": 1}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr * _power(max(1 - iteration / spec.max_iter, 0.0), spec.power)


@POLICIES.register("sigmoid")
class Sigmoid(Policy):
    """``base_lr / (1 + exp(-gamma · (iteration - stepsize)))``, which rises to ``base_lr``."""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "stepsize": 1}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        exponent = -spec.gamma * (iteration - spec.stepsize)
        return spec.base_lr / (1 + math.exp(min(exponent, 700.0)))  # e^710 is more than a double holds
