"""The number of threads of torch's own kernels, which each calling thread sets for itself.

``torch.set_num_threads`` tells the thread that calls it, and those that start later. So each thread of the inner layer
calls it once, and nothing has to be switched over and back for a pass. What other threads use stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

from bpt.system.comm.openmp_waiting import gnu_openmp

_SOFT = 1  # omp_pause_soft of omp.h


@contextmanager
def library_threads_as_before() -> Iterator[None]:
    """Restore torch's number of threads at the end, for the caller and for threads that start later."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def settle_library_threads(number: int) -> None:
    """Let kernels that the calling thread calls use so many threads from now on."""
    torch.get_num_threads()  # the first call of a thread takes over what others were told last
    torch.set_num_threads(number)


def release_library_threads() -> None:
    """End the threads that torch's kernels have started for the calling thread; they restart when needed.

    After a kernel has ended, GNU's OpenMP has its threads spin for some milliseconds in case another one comes. In
    that time they would take the cores from the threads of the inner layer. Nothing happens where the library is
    another one or does not know the call.
    """
    _pause()(_SOFT)


@cache
def _pause() -> Callable[[int], object]:
    """Return ``omp_pause_resource_all`` of the OpenMP that torch uses, or a function without effect."""
    call: Callable[[int], object] = getattr(gnu_openmp(), "omp_pause_resource_all", lambda kind: None)
    return call
