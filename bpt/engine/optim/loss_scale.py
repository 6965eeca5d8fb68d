"""LossScale: losses are multiplied by it, and gradients divided by it again, so that half precision can hold what is
small between.

Diffs are products of many small numbers: float16 has none below 6e-8, and what would be below is 0 ("Mixed precision
training", Micikevicius et al., 2018, section 3.2). By how much a net's diffs can be made larger before one is infinite
nobody knows before, so a dynamic scale tries it out, as that paper and torch's GradScaler do. Scales are powers of two:
products with them are exact, and in single precision a scaled run is the unscaled one, bit for bit.
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
"""The scale, and for how many iterations all gradients have been finite by it."""


class LossScale:
    """By what the losses of an iteration are multiplied.

    A dynamic scale is halved when a gradient is not finite, whose update is left out, and doubled after
    ``GROWS_AFTER`` iterations without that.

    Args:
        start: the first one, above 0; the next power of two below is taken.
        dynamic: whether it changes.
        agree: whether this rank or any of those that update together with it has such a gradient; a collective call,
            made in each iteration if ``dynamic``.
        lag: of a pipeline whose stages run ahead of each other: so many iterations after a batch has begun its last
            gradient, by the scale of that time, may come to be known. It is then not ``divide`` that tells what has
            come of an iteration, but a call of ``learn`` on all ranks.

    Attributes:
        value: of the iteration that begins.
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
        """Go on from a ``state()``, or anew."""
        self.value, self._good = state if state and self.dynamic else (self._start, 0)
        self._old = 0  # iterations in which gradients by an earlier scale may still come to be known
        self._given.clear()

    def state(self) -> State | None:
        """Return what a run that goes on takes over; ``None``: nothing changes."""
        return (self.value, self._good) if self.dynamic else None

    def begin(self, batch: int) -> float:
        """Return the scale of the losses of an iteration; ``batch`` is its number."""
        if batch != self._next:  # elsewhere: batches that are under way will not come back
            self._given.clear()
        self._next = batch + 1
        self._given[batch] = self.value
        self._given.pop(batch - 1 - (self._lag or 0), None)
        return self.value

    @torch.no_grad()
    def divide(self, gradients: Sequence[Tensor], batch: int) -> bool:
        """Make true gradients of those that have come of a batch's losses; whether all are finite.

        Args:
            gradients: that this rank has; changed in place.
            batch: the number that ``begin`` was told.
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
        """Choose the next scale by whether all ranks' gradients were finite.

        Args:
            iteration: of these, for the log.
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
    """Divide them; whether all are finite. One kernel does both."""
    if not gradients:
        return True
    device = gradients[0].device
    infinite = torch.zeros(1, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(
        list(gradients), infinite, torch.full((1,), 1 / scale, device=device)
    )
    return not infinite.item()
