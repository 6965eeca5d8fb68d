"""The learning rate at an iteration, by Caffe's seven policies (``SGDSolver::GetLearningRate``).

Iterations count from 0. The rate depends on the iteration alone, so a resumed run needs no state for it;
``current_step`` is saved because Caffe saves it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import ClassVar

from bpt.errors import PrototxtError, UserError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import Locate, check_number, nowhere
from bpt.registry import Registry

LOG = logging.getLogger("bpt")


class Policy:
    """One ``lr_policy``. ``needs``: the fields that must be set, each with the least value that makes sense."""

    needs: ClassVar[Mapping[str, float | None]] = {}

    @classmethod
    def rate(cls, param: pb.SolverParameter, iteration: int) -> float:
        """The learning rate at ``iteration``."""
        raise NotImplementedError

    @classmethod
    def steps(cls, param: pb.SolverParameter, iteration: int) -> int:
        """How many times the rate has been lowered at ``iteration``; 0 for a policy without steps."""
        return 0

    @classmethod
    def check(cls, param: pb.SolverParameter, origin: Locate) -> None:
        """Raise a PrototxtError if a field is missing or makes no sense."""
        for field, least in cls.needs.items():
            _check_set(param, field, origin)
            check_number(param, field, origin, least)


POLICIES: Registry[type[Policy]] = Registry("lr_policy")


def learning_rate(param: pb.SolverParameter, iteration: int) -> float:
    """The learning rate at ``iteration``, before any ``lr_mult``."""
    return POLICIES[param.lr_policy].rate(param, iteration)


def current_step(param: pb.SolverParameter, iteration: int) -> int:
    """Steps that the policies step and multistep have taken at ``iteration``; 0 for the others.

    A solver state after n iterations holds the step of iteration n - 1, the last one whose rate was asked for.
    """
    return POLICIES[param.lr_policy].steps(param, max(iteration, 0))


def log_step(param: pb.SolverParameter, iteration: int) -> None:
    """Log that the policy multistep takes a step at ``iteration``, if it does, in Caffe's words."""
    if param.lr_policy == "multistep" and iteration in param.stepvalue:
        LOG.info("MultiStep Status: Iteration %d, step = %d", iteration, current_step(param, iteration))


def check(param: pb.SolverParameter, origin: Locate = nowhere) -> None:
    """Raise a PrototxtError, at the field that is wrong, unless the policy can give a rate at any iteration.

    Caffe takes a field that is not set as 0 and trains with the rate that comes of it.

    Args:
        origin: where fields stand, for the message.
    """
    if not param.lr_policy:
        raise PrototxtError(f"lr_policy is not set; use one of {', '.join(POLICIES)}", origin("lr_policy"))
    try:
        policy = POLICIES[param.lr_policy]
    except UserError as error:
        raise PrototxtError(str(error), origin("lr_policy")) from None
    _check_set(param, "base_lr", origin)
    check_number(param, "base_lr", origin, least=0)
    policy.check(param, origin)


def _check_set(param: pb.SolverParameter, field: str, origin: Locate) -> None:
    if not param.HasField(field):
        raise PrototxtError(f'{field} is not set; lr_policy "{param.lr_policy}" needs it', origin("lr_policy"))


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
    def rate(cls, param: pb.SolverParameter, iteration: int) -> float:
        return param.base_lr


@POLICIES.register("step")
class Step(Policy):
    """``base_lr · gamma ^ floor(iteration / stepsize)``"""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "stepsize": 1}

    @classmethod
    def rate(cls, param: pb.SolverParameter, iteration: int) -> float:
        return param.base_lr * _power(param.gamma, cls.steps(param, iteration))

    @classmethod
    def steps(cls, param: pb.SolverParameter, iteration: int) -> int:
        return iteration // param.stepsize


@POLICIES.register("multistep")
class MultiStep(Step):
    """``base_lr · gamma ^ (how many of stepvalue are reached)``"""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0}

    @classmethod
    def steps(cls, param: pb.SolverParameter, iteration: int) -> int:
        return sum(iteration >= value for value in param.stepvalue)

    @classmethod
    def check(cls, param: pb.SolverParameter, origin: Locate) -> None:
        super().check(param, origin)
        values = list(param.stepvalue)
        if not values:
            raise PrototxtError('stepvalue is not set; lr_policy "multistep" needs it', origin("lr_policy"))
        for index, (before, value) in enumerate(zip([-1, *values], values, strict=False)):
            if value <= before:
                problem = f"must be above the one before, {before}" if index else "must be at least 0"
                raise PrototxtError(f"stepvalue is {value}; it {problem}", origin("stepvalue", index))


@POLICIES.register("exp")
class Exp(Policy):
    """``base_lr · gamma ^ iteration``"""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0}

    @classmethod
    def rate(cls, param: pb.SolverParameter, iteration: int) -> float:
        return param.base_lr * _power(param.gamma, iteration)


@POLICIES.register("inv")
class Inv(Policy):
    """``base_lr · (1 + gamma · iteration) ^ -power``"""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "power": None}

    @classmethod
    def rate(cls, param: pb.SolverParameter, iteration: int) -> float:
        return param.base_lr * _power(1 + param.gamma * iteration, -param.power)


@POLICIES.register("poly")
class Poly(Policy):
    """``base_lr · (1 - iteration / max_iter) ^ power``; 0 beyond ``max_iter``, where Caffe's may be NaN."""

    needs: ClassVar[Mapping[str, float | None]] = {"power": 0, "max_iter": 1}

    @classmethod
    def rate(cls, param: pb.SolverParameter, iteration: int) -> float:
        return param.base_lr * _power(max(1 - iteration / param.max_iter, 0.0), param.power)


@POLICIES.register("sigmoid")
class Sigmoid(Policy):
    """``base_lr / (1 + exp(-gamma · (iteration - stepsize)))``, which rises to ``base_lr``."""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0, "stepsize": 1}

    @classmethod
    def rate(cls, param: pb.SolverParameter, iteration: int) -> float:
        exponent = -param.gamma * (iteration - param.stepsize)
        return param.base_lr / (1 + math.exp(min(exponent, 700.0)))  # e^710 is more than a double holds
