"""Workers: threads that share the work on a batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
MOST = 8  # more than this only on demand


def how_many(wanted: int) -> int:
    """What ``num_workers`` means: itself, or, if it is 0, as many as the process has cores, at most 8."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return wanted or min(cores, MOST)


class Workers:
    """Runs tasks in ``count`` threads; one worker is the caller's thread.

    Whatever their number, ``run`` returns the same: what tasks do must not depend on one another. Threads and not
    processes, as Pillow's decoders and NumPy's loops let other threads run meanwhile, and nothing has to be copied.
    They start with the first tasks.
    """

    def __init__(self, count: int) -> None:
        assert count >= 1, count
        self.count = count
        self._pool = ThreadPoolExecutor(count, "bpt worker") if count > 1 else None

    def run(self, tasks: Iterable[Callable[[], T]]) -> list[T]:
        """What each of ``tasks`` returns, in their order; they may come from an iterator, which this thread advances.

        Raises:
            Exception: what the first of the tasks, in their order, or the iterator raised. No other task runs then.
        """
        if self._pool is None:
            return [task() for task in tasks]
        futures: list[Future[T]] = []
        try:
            for task in tasks:
                futures.append(self._pool.submit(task))
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """End the threads; what they are at is waited for. The object is not used afterwards."""
        if self._pool is not None:
            self._pool.shutdown()


ALONE = Workers(1)
