"""The displayed loss of a run: smoothed over ``average_loss`` iterations, watched for NaN."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable

from bpt.engine.late_loss import LateLoss, Loss

LOG = logging.getLogger("bpt")


MOST_LATE = 256  # largest number of unread losses; a device is rarely so many iterations behind


class SmoothedLoss:
    """The mean of the last ``average_loss`` losses (Caffe: ``UpdateSmoothedLoss``).

    A loss that is not finite is reported once, with its iteration; as in Caffe, training continues. Late losses are
    read when a value is requested.

    Args:
        check: function to call with the iteration and the value of each late loss when it is read.
    """

    def __init__(self, average_loss: int, check: Callable[[int, float], object] = lambda iteration, loss: None) -> None:
        self._recent: deque[float] = deque(maxlen=max(average_loss, 1))
        self._late: deque[tuple[int, LateLoss]] = deque()
        self._check = check
        self._warned = False

    def load(self, history: Iterable[float]) -> None:
        """Continue from a ``history``."""
        self._recent, self._warned = deque(history, self._recent.maxlen), False
        self._late.clear()

    def add(self, iteration: int, loss: Loss) -> None:
        if isinstance(loss, LateLoss):
            self._late.append((iteration, loss))
            if len(self._late) > MOST_LATE:
                self._read_oldest()
        else:
            self.settle()
            self._add(iteration, loss)

    def settle(self) -> None:
        """Read all late losses, in order."""
        while self._late:
            self._read_oldest()

    def _read_oldest(self) -> None:
        iteration, late = self._late.popleft()
        loss = float(late)
        self._check(iteration, loss)
        self._add(iteration, loss)

    def _add(self, iteration: int, loss: float) -> None:
        self._recent.append(loss)
        if not math.isfinite(loss) and not self._warned:
            self._warned = True
            LOG.warning(
                "Iteration %d: loss = %g is not finite; training continues, but its result is useless. "
                "A smaller base_lr or clip_gradients often helps.",
                iteration,
                loss,
            )

    @property
    def value(self) -> float:
        """The smoothed loss; 0 before the first iteration."""
        self.settle()
        return sum(self._recent) / len(self._recent) if self._recent else 0.0

    @property
    def history(self) -> tuple[float, ...]:
        """The losses in the mean, oldest first, which a snapshot stores."""
        self.settle()
        return tuple(self._recent)
