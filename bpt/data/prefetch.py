"""Prefetcher prepares batches ahead of their use in a separate thread; Workers are threads that share this work."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
MOST = 8  # largest default number of threads


def how_many(wanted: int) -> int:
    """Return the number of threads for ``num_workers``; 0 means one for each core of the process, at most MOST."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return wanted or min(cores, MOST)


class Workers:
    """Runs tasks in ``count`` threads; one worker is the caller's thread.

    Tasks must not depend on one another, so ``run`` returns the same for any number of threads. Threads need no copies
    as processes would, and Pillow's decoders and NumPy's loops release Python's lock. They start with the first tasks.
    """

    def __init__(self, count: int) -> None:
        assert count >= 1, count
        self.count = count
        self._pool = ThreadPoolExecutor(count, "bpt worker") if count > 1 else None

    def run(self, tasks: Iterable[Callable[[], T]]) -> list[T]:
        """Run ``tasks`` and return their results, in the order of the tasks.

        The tasks may come from an iterator, which this thread advances.

        Raises:
            Exception: the error of the iterator, or of the first failed task in their order. No task runs after that.
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
        """Wait for running tasks and end the threads; the object cannot be used afterwards."""
        if self._pool is not None:
            self._pool.shutdown()


ALONE = Workers(1)


class Prefetcher(Generic[T]):
    """Returns ``load(0)``, ``load(step)``, ``load(2 · step)``, … in order, from a thread that works ahead.

    The thread starts at the first ``next``, and ``load`` runs only in it. If ``load`` raises an exception, ``next``
    raises it instead of returning the batch.

    Args:
        load: function that makes the batch at a position.
        step: samples in a batch.
        depth: largest number of batches that are prepared ahead, at least 1.
    """

    def __init__(self, load: Callable[[int], T], step: int, depth: int) -> None:
        self._load = load
        self._step = step
        self._depth = depth
        self._position = 0
        self._worker: _Worker[T] | None = None
        self._stop: Callable[[], object] = lambda: None

    @property
    def position(self) -> int:
        """Number of samples returned so far; those prepared ahead do not count."""
        return self._position

    @position.setter
    def position(self, samples: int) -> None:
        self.close()
        self._position = samples

    def next(self) -> T:
        """Return the next batch; wait for it if necessary."""
        if self._worker is None:
            self._worker = _Worker(self._load, self._position, self._step, self._depth)
            # The finalizer also stops the thread when the prefetcher is deleted or the program ends.
            self._stop = weakref.finalize(self, self._worker.stop)
        try:
            batch = self._worker.take()
        except BaseException:
            self.close()
            raise
        self._position += self._step
        return batch

    def close(self) -> None:
        """Drop the batches that were prepared ahead, and end the thread; ``next`` would start another one."""
        self._stop()
        self._worker = None


class _Worker(Generic[T]):
    """The thread of a Prefetcher; it holds no reference to it, so that the Prefetcher can be deleted."""

    def __init__(self, load: Callable[[int], T], position: int, step: int, depth: int) -> None:
        self._load = load
        self._position = position
        self._step = step
        self._room = threading.Semaphore(depth)
        self._batches: queue.SimpleQueue[T | _Failure] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="bpt prefetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._room.acquire() and not self._stopping:
            try:
                self._batches.put(self._load(self._position))
            except BaseException as error:
                self._batches.put(_Failure(error))
                return
            self._position += self._step

    def take(self) -> T:
        batch = self._batches.get()
        self._room.release()
        if isinstance(batch, _Failure):
            raise batch.error
        return batch

    def stop(self) -> None:
        self._stopping = True
        self._room.release()
        if threading.current_thread() is not self._thread:  # the garbage collector may call this from any thread
            self._thread.join()


class _Failure:
    """An exception of ``load`` that ``next`` will raise."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
