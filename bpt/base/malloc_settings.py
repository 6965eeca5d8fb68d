"""Where the process takes its memory from: what training frees is kept, and threads share one heap."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

# Parameters of glibc's mallopt, from <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
ANY_SIZE = 2**31 - 1  # the largest that mallopt takes


def keep_freed_memory(up_to: int = ANY_SIZE) -> bool:
    """Tell the C library to keep freed blocks of up to so many bytes for this process; whether it agreed.

    By default glibc maps every large tensor anew and unmaps it when it is freed, and the system clears each
    page again: on a CPU a quarter of the time of a training iteration. The price is that memory freed is not
    handed back to other programs before the process ends. Nothing happens where the library is another.
    """
    return _mallopt({M_MMAP_THRESHOLD: up_to, M_TRIM_THRESHOLD: -1})


def share_heap() -> bool:
    """Let threads that start from now on take memory from the heap of the process; whether the C library agreed.

    By default glibc gives each thread heaps of its own, of 64 MiB. Larger tensors are mapped anew each time, and a heap
    that has become free goes back, so that the system clears its pages again in every pass: with large blobs that is a
    tenth of the time, and a fifth more memory. The price is that threads which allocate at the same time wait for each
    other. Nothing happens where the library is another.
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
    """Give all memory that is free now back to the system; whether the C library had any to give."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (OSError, AttributeError):
        return False
