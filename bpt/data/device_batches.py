"""Copies batches to a GPU ahead of their use, on a separate stream (Caffe: ``async_gpu_push``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.system.device import StreamEvent, computing_stream, new_stream


@dataclass(frozen=True)
class DeviceBatch:
    """A batch whose copy to a device may be under way.

    Attributes:
        tops: its tensors on the device, complete when ``copied`` is reached.
        copied: the event at the end of the copy.
        device: the device.
    """

    tops: Sequence[Tensor]
    copied: StreamEvent
    device: torch.device

    def take(self) -> tuple[Tensor, ...]:
        """Return the tensors for work that the caller enqueues from now on; the device waits for the copy."""
        computing_stream(self.device).after(self.copied)
        for top in self.tops:
            if top.is_cuda:  # without this, a later copy could get the memory while the net still reads it
                top.record_stream(torch.cuda.current_stream(self.device))
        return tuple(self.tops)


class DeviceBatches:
    """Makes batches, and copies them to a device while it computes.

    Args:
        load: function that makes the batch at a position, in pinned memory.
        device: the device.
    """

    def __init__(self, load: Callable[[int], tuple[Tensor, ...]], device: torch.device) -> None:
        self._load = load
        self._device = device
        self._stream = new_stream(device, "H2D batches")

    def __call__(self, position: int) -> DeviceBatch:
        """Return the batch that starts at ``position``; its copy may be under way."""
        made, tops = self._load(position), list[Tensor]()
        copied = self._stream.submit(lambda: tops.extend(to_device(top, self._device) for top in made))
        return DeviceBatch(tops, copied, self._device)

    def close(self) -> None:
        """End the stream."""
        self._stream.close()


def to_device(top: Tensor, device: torch.device) -> Tensor:
    """Return a copy of ``top`` on the device, made by the current stream."""
    return top.to(device, non_blocking=True)
