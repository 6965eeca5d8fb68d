"""The threads of the inner layer: they run the tasks of a DAG as their inputs become complete."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

import torch

from bpt.parallel.task_dag.library import library_threads_as_before, settle_library_threads
from bpt.parallel.task_dag.task_dag import Dispatcher, LaneEvent, TaskDag, Timeline

Work = Callable[[], None]


class Pool:
    """A pool of threads that start with the first ``run`` and live until ``stop``.

    Args:
        threads: the number of threads; the thread that calls ``run`` only waits, and runs pinned tasks.
    """

    def __init__(self, threads: int) -> None:
        assert threads >= 1, threads
        self.threads = threads
        self._wakeups: list[queue.SimpleQueue[tuple[_Run, int] | None]] = []

    def run(self, dag: TaskDag, works: Sequence[Work]) -> Timeline:
        """Run task i of ``dag`` by ``works[i]``, each when its inputs are complete; return when all are done.

        Tasks begin in ``torch.no_grad()``.

        Raises:
            BaseException: the error of a task; of several, that of the first one in the list. No other task starts
                then, and ``run`` waits for those that are running.
        """
        if not self._wakeups:
            self._start()
        run = _Run(dag, works, self.threads, self._wakeups)
        with torch.no_grad():
            return run.run_as_caller()

    def _start(self) -> None:
        self._wakeups = [queue.SimpleQueue() for _ in range(self.threads)]
        owner = threading.current_thread().name
        ready = threading.Barrier(self.threads + 1)
        with library_threads_as_before():
            for lane, wakeup in enumerate(self._wakeups):
                # A daemon: a task that waits for ever must not keep a process alive that ends for another reason.
                name = f"task DAG {lane} of {owner}"
                threading.Thread(target=_serve, args=(lane, wakeup, ready), name=name, daemon=True).start()
            ready.wait()

    def stop(self) -> None:
        """End the threads; ``run`` would start new ones."""
        for wakeup in self._wakeups:
            wakeup.put(None)
        self._wakeups = []


def _serve(lane: int, wakeup: queue.SimpleQueue[tuple[_Run, int] | None], ready: threading.Barrier) -> None:
    """Run the loop of a thread."""
    settle_library_threads(1)
    torch.set_grad_enabled(False)  # of this thread; a task that needs a graph says so
    ready.wait()
    while (order := wakeup.get()) is not None:
        run, first = order
        run.run_from(lane, first)
        del order, run  # what the pass refers to is free before the next one comes


class _Run:
    """The shared state of the threads in one pass."""

    def __init__(
        self,
        dag: TaskDag,
        works: Sequence[Work],
        threads: int,
        wakeups: Sequence[queue.SimpleQueue[tuple[_Run, int] | None]],
    ) -> None:
        assert len(works) == len(dag), (len(works), len(dag))
        self._dag = dag
        self._works = works
        self._threads = threads
        self._wakeups = wakeups
        self._caller: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # pinned tasks; None: all is done
        self._lock = threading.Lock()
        self._dispatcher = Dispatcher(dag, threads)
        self._idle = set(range(threads + 1))
        self._errors: list[tuple[int, BaseException]] = []
        self._events: list[LaneEvent] = []
        self._begin = time.perf_counter()

    def run_as_caller(self) -> Timeline:
        """Run the caller's part of the pass."""
        index: int | None = None
        begun = False
        while True:
            try:
                if index is not None:
                    self.run_from(self._threads, index)
                elif not begun:
                    begun = True
                    with self._lock:
                        self._wake_idle()
                index = self._caller.get()
                if index is None:
                    break
            except BaseException as caught:  # a signal; the tasks that run must end before anything else runs
                index = None
                with self._lock:
                    self._errors.append((-1, caught))
                    self._idle.add(self._threads)
                    self._wake_idle()
        if self._errors:
            raise min(self._errors, key=lambda error: error[0])[1]
        return Timeline(self._dag, self._threads, tuple(self._events), time.perf_counter() - self._begin)

    def run_from(self, lane: int, first: int) -> None:
        """Run task ``first`` and then all further tasks of ``lane``."""
        index: int | None = first
        while index is not None:
            error = None
            start = time.perf_counter()
            try:
                self._works[index]()
            except BaseException as caught:
                error = caught
            end = time.perf_counter()
            with self._lock:
                self._events.append(LaneEvent(index, lane, start - self._begin, end - self._begin))
                self._dispatcher.complete(lane, index)
                if error is not None:
                    self._errors.append((index, error))
                index = None if self._errors else self._dispatcher.next(lane)
                if index is None:
                    self._idle.add(lane)
                self._wake_idle()

    def _wake_idle(self) -> None:
        """Wake idle lanes that have a task, or the caller if nothing is left; with the lock held."""
        if not self._errors and self._dispatcher.left:
            for lane in sorted(self._idle):
                index = self._dispatcher.next(lane)
                if index is None:
                    continue
                # In this order: after a signal in between, nobody waits for a lane that has not been called.
                if lane == self._threads:
                    self._caller.put(index)
                else:
                    self._wakeups[lane].put((self, index))
                self._idle.discard(lane)
        if len(self._idle) > self._threads:  # nobody runs anything, so nothing will come
            assert self._errors or not self._dispatcher.left, self._dispatcher.left
            self._caller.put(None)
