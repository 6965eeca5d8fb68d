"""Memory of a device that other processes of the machine can read: by CUDA's handles, as torch passes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor


@dataclass(frozen=True)
class Handle:
    """A name of a tensor for other processes; it can be pickled.

    Attributes:
        device: the index of the device and its own name, which shows whether the index means the same elsewhere.
        build: makes the tensor from ``arguments``.
    """

    device: tuple[int, str]
    build: Callable[..., Tensor]
    arguments: tuple[Any, ...]


def share(tensor: Tensor) -> Handle | None:
    """Return a handle of ``tensor``, which must live as long as anybody has it open; ``None`` if impossible here."""
    if tensor.device.type != "cuda":
        return None
    try:
        build, arguments = reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        return Handle(_device_of(tensor.device.index), build, arguments)
    except (RuntimeError, AttributeError):  # for example, the allocator has no handles, or torch has no such function
        return None


def open_shared(handle: Handle | None) -> Tensor | None:
    """Return the tensor of another process; ``None`` if it cannot be reached from here."""
    try:
        if handle is None or _device_of(handle.device[0]) != handle.device:
            return None
        return handle.build(*handle.arguments)
    except (RuntimeError, AttributeError, AssertionError):
        return None


def _device_of(index: int) -> tuple[int, str]:
    return index, str(torch.cuda.get_device_properties(index).uuid)
