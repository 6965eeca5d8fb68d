"""LossScale: multiplies losses and divides gradients, so that half precision can hold small diffs.

Diffs are products of many small numbers. Float16 has no number below 6e-8, so smaller ones become 0 ("Mixed precision
training", Micikevicius et al., 2018, section 3.2). Nobody knows beforehand how large a scale may be before a diff is
infinite. So a dynamic scale tries it out, as that paper and torch's GradScaler do. Scales are powers of two, so that
products with them are exact: in single precision a scaled run equals the unscaled one, bit for bit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

LOG = logging.getLogger("bpt")

FIRST = 2.0**16
GROWS_AFTER = 2000  # iterations
LEAST, LARGEST = 2.0**-14, 2.0**40

State = tuple[float, int]
"""The scale, and the number of iterations in which all gradients have been finite."""


class LossScale:
    """The factor of the losses of an iteration.

    A dynamic scale is halved when a gradient is not finite, and that update is skipped. It is doubled after
    ``GROWS_AFTER`` iterations without such a gradient.

    Args:
        start: the first scale, above 0, which is rounded down to a power of two.
        dynamic: whether the scale changes.
        agree: returns whether any of the ranks that update together has a gradient that is not finite; a collective
            call, made in each iteration if ``dynamic``.
        lag: of a pipeline whose stages run ahead of each other: the iterations after which the last gradient of a
            batch, by the scale of that time, is known. All ranks must then call ``learn``; ``divide`` does not.

    Attributes:
        value: the scale of the iteration that begins.
    """

    def __init__(
        self, start: float = 1.0, dynamic: bool = False, agree: Callable[[bool], bool] = bool, lag: int | None = None
    ) -> None:
        self._start = 2.0 ** math.floor(math.log2(start))
        self.dynamic = dynamic
        self._agree = agree
        self._lag = lag
        self._given: dict[int, float] = {}  # batches whose gradients are to come
        self._next = 0
        self.load(None)

    def load(self, state: State | None) -> None:
        """Continue from a ``state()``, or start anew for ``None``."""
        self.value, self._good = state if state and self.dynamic else (self._start, 0)
        self._old = 0  # iterations in which gradients by an earlier scale may still come to be known
        self._given.clear()

    def state(self) -> State | None:
        """Return the state for a run that continues this one; ``None`` if the scale never changes."""
        return (self.value, self._good) if self.dynamic else None

    def begin(self, batch: int) -> float:
        """Return the scale of the losses of an iteration; ``batch`` is its number."""
        if batch != self._next:  # the run continues elsewhere: batches that are under way do not come back
            self._given.clear()
        self._next = batch + 1
        self._given[batch] = self.value
        self._given.pop(batch - 1 - (self._lag or 0), None)
        return self.value

    @torch.no_grad()
    def divide(self, gradients: Sequence[Tensor], batch: int) -> bool:
        """Unscale the gradients of a batch; return whether all are finite.

        Args:
            gradients: the gradients on this rank, which are changed in place.
            batch: the number that was given to ``begin``.
        """
        scale = self._given[batch]
        if not self.dynamic:
            if scale != 1 and gradients:
                torch._foreach_mul_(list(gradients), 1 / scale)
            return True
        finite = not self._agree(not _divided(gradients, scale))
        if self._lag is None:
            self.learn(finite, batch)
        return finite

    def learn(self, finite: bool, iteration: int | None = None) -> None:
        """Choose the next scale by whether the gradients of all ranks were finite.

        Args:
            iteration: of these gradients, for the log.
        """
        if self._old:
            self._old -= 1
        elif finite:
            self._good += 1
            if self._good == GROWS_AFTER:
                self._good = 0
                if self.value < LARGEST:
                    self.value *= 2
                    LOG.info("Loss scale: %g, after %d iterations with finite gradients", self.value, GROWS_AFTER)
        else:
            self._good, self._old = 0, self._lag or 0
            which = "a gradient" if iteration is None else f"a gradient of iteration {iteration}"
            if self.value > LEAST:
                self.value /= 2
                LOG.info("Loss scale: %g, since %s is not finite; its update is left out", self.value, which)
            else:
                LOG.warning("%s is not finite, whatever the loss scale: has the loss diverged?", which.capitalize())


def _divided(gradients: Sequence[Tensor], scale: float) -> bool:
    """Divide the gradients by the scale; return whether all are finite. One kernel does both."""
    if not gradients:
        return True
    device = gradients[0].device
    infinite = torch.zeros(1, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(
        list(gradients), infinite, torch.full((1,), 1 / scale, device=device)
    )
    return not infinite.item()
