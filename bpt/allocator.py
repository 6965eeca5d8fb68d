"""Keeps memory that training frees, so that the next iteration need not ask the system for it again."""

from __future__ import annotations

import ctypes
import sys

# Parameters of glibc's mallopt, from <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
ANY_SIZE = 2**31 - 1  # the largest that mallopt takes


def keep_freed_memory(up_to: int = ANY_SIZE) -> bool:
    """Tell the C library to keep freed blocks of up to so many bytes for this process; whether it agreed.

    By default glibc maps every large tensor anew and unmaps it when it is freed, and the system clears each
    page again: on a CPU a quarter of the time of a training iteration. The price is that memory freed is not
    handed back to other programs before the process ends. Nothing happens where the library is another.
    """
    if sys.platform != "linux":
        return False
    try:
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(M_MMAP_THRESHOLD, up_to)) and bool(libc.mallopt(M_TRIM_THRESHOLD, -1))
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
