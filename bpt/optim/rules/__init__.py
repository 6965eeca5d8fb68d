"""The update rules, one file each, entered under Caffe's names; ``make_rule`` is the way to one."""

from __future__ import annotations

import importlib
import pkgutil

from bpt.errors import PrototxtError, UserError
from bpt.net import Net
from bpt.optim.gradients import LearnableParam, learnable_params
from bpt.optim.rules.base import UPDATE_RULES, UpdateRule
from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import Locate, check_number, nowhere

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["UPDATE_RULES", "LearnableParam", "UpdateRule", "check", "learnable_params", "make_rule"]

REGULARIZATIONS = ("L1", "L2")


def make_rule(param: pb.SolverParameter, net: Net, keep_updates: bool = False) -> UpdateRule:
    """The update rule that ``param.type`` names, for the parameters of ``net``, with an empty history.

    Args:
        keep_updates: keep the last update of each parameter for inspection; ``snapshot_diff`` does too.

    Raises:
        PrototxtError: see ``check``.
    """
    check(param)
    return UPDATE_RULES[param.type](param, learnable_params(net), keep_updates or param.snapshot_diff)


def check(param: pb.SolverParameter, origin: Locate = nowhere) -> None:
    """Raise a PrototxtError, at the field that is wrong, unless there is such a rule and its numbers make sense.

    Args:
        origin: where fields stand, for the message.
    """
    try:
        rule = UPDATE_RULES[param.type]
    except UserError as error:
        raise PrototxtError(str(error), origin("type")) from None
    if param.regularization_type not in REGULARIZATIONS:
        raise PrototxtError(
            f'unknown regularization_type "{param.regularization_type}" (known: {", ".join(REGULARIZATIONS)})',
            origin("regularization_type"),
        )
    check_number(param, "momentum", origin, least=0, below=1)
    check_number(param, "weight_decay", origin, least=0)
    check_number(param, "clip_gradients", origin)
    check_number(param, "iter_size", origin, least=1)
    rule.check(param, origin)
