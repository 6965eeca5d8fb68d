"""Rates: the learning rate of each iteration of a run, also if it follows the loss.

``lr_policy: "plateau"`` is the only policy with a state, which has the names of Intel's Caffe and of SSD's. NVIDIA's
Caffe declares the policy and refuses to run it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from bpt.base.log import number
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.lr_policy import POLICIES, learning_rate

LOG = logging.getLogger("bpt")

NO_LOSS = 1e38  # what SolverState has for a minimum that there is not yet


class Plateau(NamedTuple):
    """The state of the policy ``plateau``.

    Attributes:
        step: the number of steps.
        minimum_loss: the smallest displayed loss (the average over ``average_loss`` iterations).
        last_event: the iteration of this loss, or of the last step if that is later.
    """

    step: int = 0
    minimum_loss: float = NO_LOSS
    last_event: int = 0


class Rates:
    """A function from an iteration to its learning rate.

    Args:
        display: iterations between lines of the log.

    Attributes:
        spec: already checked; may be set, to one of the same policy.
        follows_loss: whether ``observe`` must get the loss of each iteration before its rate is used.
        plateau: the state of the policy ``plateau``.
    """

    def __init__(self, spec: OptimSpec, display: int = 0) -> None:
        self.spec = spec
        self._display = display
        self.follows_loss = POLICIES[spec.lr_policy].follows_loss
        self.plateau = Plateau()

    def __call__(self, iteration: int) -> float:
        return learning_rate(self.spec, iteration, self.plateau.step)

    def observe(self, iteration: int, loss: float) -> None:
        """Add the displayed loss of an iteration; take a step if the loss has not fallen for long enough.

        While the rate still rises (``rampup_interval``, ``warmup_iter``) losses do not count, as in Intel's Caffe.
        """
        if not self.follows_loss or iteration < max(self.spec.rampup_interval, self.spec.warmup_iter):
            return
        step, minimum, event = self.plateau
        if loss < minimum:
            minimum, event = loss, iteration
        windows = self.spec.plateau_winsize
        if step < len(windows) and iteration >= event + windows[step]:
            step, event = step + 1, iteration
            LOG.info("Plateau Status: Iteration %d, step = %d", iteration, step)
        if self._display and iteration % self._display == 0 and event > iteration - self._display:
            LOG.info("Plateau Status: Iteration %d, current minimum_loss = %s", iteration, number(minimum))
        self.plateau = Plateau(step, minimum, event)

    def state(self) -> Plateau | None:
        """Return the state for a run that continues this one; ``None`` if there is none."""
        return self.plateau if self.follows_loss else None

    def load(self, state: Plateau | None) -> None:
        """Continue from a ``state()``, or start anew for ``None``."""
        self.plateau = state or Plateau()
