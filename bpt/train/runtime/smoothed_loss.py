"""The displayed loss of a run: smoothed over ``average_loss`` iterations, watched for NaN."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable

LOG = logging.getLogger("bpt")


class SmoothedLoss:
    """The mean of the last ``average_loss`` losses (Caffe: ``UpdateSmoothedLoss``).

    A loss that is not finite is reported once, with its iteration; training goes on, as Caffe's does.
    """

    def __init__(self, average_loss: int) -> None:
        self._recent: deque[float] = deque(maxlen=max(average_loss, 1))
        self._warned = False

    def load(self, history: Iterable[float]) -> None:
        """Continue from a ``history``."""
        self._recent, self._warned = deque(history, self._recent.maxlen), False

    def add(self, iteration: int, loss: float) -> None:
        self._recent.append(loss)
        if not math.isfinite(loss) and not self._warned:
            self._warned = True
            LOG.warning(
                "Iteration %d: loss = %g is not finite; training goes on, but its result is of no use. "
                "A smaller base_lr or clip_gradients often helps.",
                iteration,
                loss,
            )

    @property
    def value(self) -> float:
        """The smoothed loss; 0 before the first iteration."""
        return sum(self._recent) / len(self._recent) if self._recent else 0.0

    @property
    def history(self) -> tuple[float, ...]:
        """The losses in the mean, oldest first, which a snapshot keeps."""
        return tuple(self._recent)
