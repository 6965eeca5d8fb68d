"""Page-locked ("pinned") host memory: a CUDA device copies from and to it faster, and without stopping the host."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import torch

LOG = logging.getLogger("bpt")

_ALREADY_REGISTERED = 712  # cudaErrorHostMemoryAlreadyRegistered: another thread of this process has pinned it


def pin(memory: torch.Tensor, device: torch.device) -> Callable[[], None]:
    """Page-lock host memory, so that ``device`` copies from and to it fast, concurrently with other work.

    For a CPU and for memory of 0 bytes this does nothing. Where it is impossible, a warning says so, and the memory is
    used unchanged. Copies are then correct, but slower and not hidden.

    Args:
        memory: contiguous host memory. It may be shared by several processes, each of which pins it. Memory that
            another thread has pinned stays unchanged. A copy must not cross the borders of pinned memory.
        device: the device of the process.

    Returns:
        A function that undoes it, to be called once, when no copy is active and before the memory is freed.
    """
    size = memory.numel() * memory.element_size()
    if device.type != "cuda" or not size:
        return _no_undo
    assert memory.device.type == "cpu" and memory.is_contiguous()
    with torch.cuda.device(device):
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        code = int(runtime.cudaHostRegister(memory.data_ptr(), size, 0))
    if not code:
        return lambda: _unpin(memory, device)
    _forget_error(device)
    if code != _ALREADY_REGISTERED:
        LOG.warning(
            "%.1f MiB of host memory could not be page-locked (CUDA error %d), so copies between it and %s will be "
            "slower; raise the limit of locked memory (ulimit -l unlimited)",
            size / 2**20,
            code,
            device,
        )
    return _no_undo


def _unpin(memory: torch.Tensor, device: torch.device) -> None:
    with torch.cuda.device(device):
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        code = int(runtime.cudaHostUnregister(memory.data_ptr()))
    if code:
        _forget_error(device)


def _forget_error(device: torch.device) -> None:
    """Clear the error that the CUDA runtime keeps; otherwise the next kernel, of any layer, would seem to fail.

    torch offers no call for that, but reads the error, and clears it, when it starts a kernel.
    """
    with contextlib.suppress(RuntimeError):
        torch.empty(1, device=device).fill_(0)


def _no_undo() -> None:
    """Do nothing: there is nothing to undo."""
