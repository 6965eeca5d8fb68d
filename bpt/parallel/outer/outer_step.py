"""OuterStep: the step from one version of the global weights to the next, with momentum over versions.

The change that replicas have made of the weights is taken as the gradient of an optimizer, the outer one. NESTEROV is
DiLoCo's (Douillard et al. 2023, arXiv 2311.08105). DELAYED_NESTEROV is that of asynchronous local SGD (Liu et al. 2024,
arXiv 2401.09135, with c = 0): of each N versions only the last one uses momentum. With d the change of a version, s the
sum of the changes since momentum was used last, and v the momentum::

    plain step          W ← W + lr · d
    step with momentum  v ← momentum · v + s    W ← W + lr · (momentum · v + d)    s ← 0

NESTEROV has momentum in each step, so there s = d. The paper of DELAYED_NESTEROV divides each change by N. Here AGWU's
factor, about 1 / (N - 1) by Eq. 9, is in d already. Every element is updated separately: a part of the weights can be
updated anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bpt.config.plan.run_plan import OuterSpec
from bpt.config.proto import bpt_pb2 as pb

Floats = NDArray[np.floating]
MOMENTUM_NAMES = ("outer momentum", "outer sum")


@dataclass(frozen=True)
class OuterStep:
    """One step.

    Attributes:
        lr: its factor.
        momentum: the part of the momentum that stays.
        uses_momentum: whether it updates momentum and uses it.
    """

    lr: float
    momentum: float
    uses_momentum: bool = True


class OuterSteps:
    """Decides the steps of a run.

    Args:
        param: ``outer_param``.
    """

    def __init__(self, param: OuterSpec) -> None:
        self._param = param
        self._plain = 0  # steps without momentum since the last one with it

    def next(self, workers: int = 1) -> OuterStep | None:
        """Return the step to the next version; ``None``: the version is the change itself.

        Args:
            workers: N, the number of workers whose changes come one by one.
        """
        param = self._param
        if not param.name:
            return None
        delays = param.type == pb.OuterParameter.DELAYED_NESTEROV
        uses = not delays or self._plain + 1 >= workers
        self._plain = 0 if uses else self._plain + 1
        return OuterStep(param.lr, param.momentum, uses)


class OuterMomentum:
    """The memory of outer steps: the momentum v, and the sum s of the changes since it was used last."""

    def __init__(self) -> None:
        self._momentum: Floats | None = None
        self._sum: Floats | None = None

    def step(self, step: OuterStep, change: Floats) -> Floats:
        """Return what the step adds to the weights, for a version's ``change``."""
        if not step.uses_momentum:
            self._sum = change.copy() if self._sum is None else self._sum + change
            return step.lr * change
        added = change if self._sum is None else self._sum + change
        self._momentum = added.copy() if self._momentum is None else step.momentum * self._momentum + added
        self._sum = None
        moved: Floats = step.lr * (step.momentum * self._momentum + change)
        return moved

    def state(self) -> dict[str, Floats]:
        """Return the memory by name; what is zero everywhere is left out."""
        named = zip(MOMENTUM_NAMES, (self._momentum, self._sum), strict=True)
        return {name: values for name, values in named if values is not None}

    def load(self, state: Mapping[str, Floats]) -> None:
        """Continue from a ``state``."""
        self._momentum, self._sum = map(state.get, MOMENTUM_NAMES)
