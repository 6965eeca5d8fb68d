"""Settings of the C library's malloc: keep memory that training frees, and share one heap between threads."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

# Parameters of glibc's mallopt, from <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
ANY_SIZE = 2**31 - 1  # the largest that mallopt takes


def keep_freed_memory(up_to: int = ANY_SIZE) -> bool:
    """Let the C library keep freed blocks of at most ``up_to`` bytes for this process; return whether it did.

    By default glibc maps memory for every large tensor and unmaps it when it is freed, and the system clears each page
    again. On a CPU this takes a quarter of the time of a training iteration. The price is that other programs get freed
    memory only when the process ends. Other C libraries ignore this call.
    """
    return _mallopt({M_MMAP_THRESHOLD: up_to, M_TRIM_THRESHOLD: -1})


def share_heap() -> bool:
    """Let new threads use the heap of the process; return whether the C library agreed.

    By default glibc gives each thread heaps of its own, of 64 MiB. Larger tensors are mapped each time, and free heaps
    are returned, so the system clears their pages again in every pass. With large blobs this takes a tenth of the time,
    and a fifth more memory. The price is that threads which allocate at the same time wait for each other. Other C
    libraries ignore this call.
    """
    return _mallopt({M_ARENA_MAX: 1})


def _mallopt(settings: Mapping[int, int]) -> bool:
    if sys.platform != "linux":
        return False
    try:
        libc = ctypes.CDLL(None)
        return all(libc.mallopt(parameter, value) for parameter, value in settings.items())
    except (OSError, AttributeError):
        return False


def release_free_memory() -> bool:
    """Return all free memory to the system; return whether the C library had any."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (OSError, AttributeError):
        return False
