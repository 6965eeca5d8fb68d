"""Where the threads of the inner layer take their memory from."""

from __future__ import annotations

import ctypes
import sys

_M_ARENA_MAX = -8  # of glibc's mallopt, from <malloc.h>


def share_heap() -> bool:
    """Let threads that start from now on take memory from the heap of the process; whether the C library agreed.

    By default glibc gives each thread heaps of its own, of 64 MiB. Larger tensors are mapped anew each time, and a heap
    that has become free goes back, so that the system clears its pages again in every pass: with large blobs that is a
    tenth of the time, and a fifth more memory. The price is that threads which allocate at the same time wait for each
    other. Nothing happens where the library is another.
    """
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1))
    except (OSError, AttributeError):
        return False
