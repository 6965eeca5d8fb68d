"""Prefetcher: prepares batches ahead of their use, in a thread of its own; Workers: threads that share that work."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
MOST = 8  # more than this only on demand


def how_many(wanted: int) -> int:
    """Return what ``num_workers`` means: itself, or, if it is 0, as many as the process has cores, at most 8."""
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
        """Run ``tasks`` and return their results, in the order of the tasks.

        The tasks may come from an iterator, which this thread advances.

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


class Prefetcher(Generic[T]):
    """Hands out ``load(0)``, ``load(step)``, ``load(2 · step)``, … in order.

    The thread starts at the first ``next``. ``load`` runs in it and nowhere else; what it raises,
    ``next`` raises in place of the batch.

    Args:
        load: makes the batch that starts at a position.
        step: samples in a batch.
        depth: at most so many batches are prepared ahead, at least 1.
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
        """Samples handed out; those prepared ahead do not count."""
        return self._position

    @position.setter
    def position(self, samples: int) -> None:
        self.close()
        self._position = samples

    def next(self) -> T:
        """Return the next batch; waits for it if need be."""
        if self._worker is None:
            self._worker = _Worker(self._load, self._position, self._step, self._depth)
            # Also stops the thread when the prefetcher is forgotten, or the program ends.
            self._stop = weakref.finalize(self, self._worker.stop)
        try:
            batch = self._worker.take()
        except BaseException:
            self.close()
            raise
        self._position += self._step
        return batch

    def close(self) -> None:
        """Drop what was prepared ahead and end the thread; ``next`` would start another."""
        self._stop()
        self._worker = None


class _Worker(Generic[T]):
    """The thread; it knows nothing of its Prefetcher, so that this one can be forgotten."""

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
    """An exception of ``load`` on its way to the consumer."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
