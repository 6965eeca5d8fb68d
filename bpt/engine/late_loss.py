"""LateLoss: the loss of an iteration that a device may not have computed yet."""

from __future__ import annotations

from torch import Tensor

from bpt.system.device.host_copy import HostCopy


class LateLoss:
    """A loss that is read when somebody asks for it; the host waits for the device only then.

    Args:
        loss: the sum over the passes of an iteration, on a device.
        passes: the number of these passes.
    """

    def __init__(self, loss: Tensor, passes: int) -> None:
        self._copy: HostCopy | None = HostCopy(loss, loss.device)
        self._passes = passes
        self._value = 0.0

    def done(self) -> bool:
        """Return whether reading it waits for nothing."""
        return self._copy is None or self._copy.done()

    def __float__(self) -> float:
        if self._copy is not None:
            self._value = float(self._copy.read()) / self._passes
            self._copy = None
        return self._value


Loss = float | LateLoss
"""The loss of an iteration, which the host knows or will know; ``float`` reads it."""


def known(loss: Loss) -> float | None:
    """Return the loss, or ``None`` if the host would wait for it."""
    return float(loss) if not isinstance(loss, LateLoss) or loss.done() else None
