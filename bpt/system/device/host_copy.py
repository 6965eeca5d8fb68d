"""HostCopy: a value of a device that the host reads later, so that neither waits for the other meanwhile."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.system.device.choose import computing_stream


class HostCopy:
    """A copy of a device's tensor in the host's memory, which the device makes when it comes to it.

    The caller does not wait. On a CPU the copy is there at once.

    Args:
        source: the tensor; nothing may change it before the device has come to the copy, except work enqueued later.
        device: the device that computes it.
    """

    def __init__(self, source: Tensor, device: torch.device) -> None:
        pinned = source.device.type == "cuda"  # else the host would wait for the copy
        self._target = torch.empty(source.shape, dtype=source.dtype, pin_memory=pinned)
        enqueue_copy(self._target, source)
        self._copied = computing_stream(device).record()

    def done(self) -> bool:
        """Return whether ``read`` would return at once."""
        return self._copied.done()

    def read(self) -> Tensor:
        """Return the values; wait until the device has copied them."""
        self._copied.wait()
        return self._target


def enqueue_copy(target: Tensor, source: Tensor) -> None:
    """Let the device that has ``source`` copy it to ``target`` after the work that it has got so far."""
    target.copy_(source, non_blocking=True)
