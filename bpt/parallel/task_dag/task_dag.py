"""The inner layer's tasks and which thread runs which of them when (BPT-CNN, section 4.2). Arithmetic: no threads here.

A pass over a net is a directed acyclic graph of tasks. A task's level is the number of tasks on the longest way to it;
tasks of a lower level have a higher priority, tasks of one level have the same. Algorithm 4.2 gives every task whose
inputs are complete, in order of priority, to the thread with the least work.

Two things are beyond the paper, since costs are only estimates. Among threads with equally little work, the task goes
to the one that has just made its inputs, and so has them in its cache. A thread without work takes a task from another
thread's queue. Times are seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


@dataclass(frozen=True)
class Task:
    """One piece of a pass.

    Attributes:
        name: for messages and reports.
        cost: the estimated seconds, at least 0.
        needs: the indices of the tasks that must be complete before it starts; all of them come earlier in the list.
        pinned: only the thread that asked for the pass may run it: it waits for others, or calls other ranks.
    """

    name: str
    cost: float = 0.0
    needs: tuple[int, ...] = ()
    pinned: bool = False


class TaskDag:
    """Tasks in an order in which they could run one after the other."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tuple(tasks)
        followers: list[list[int]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            assert task.cost >= 0 and all(0 <= need < index for need in task.needs), (index, task)
            assert len(set(task.needs)) == len(task.needs), (index, task)
            for need in task.needs:
                followers[need].append(index)
        self.followers = tuple(map(tuple, followers))

    def __len__(self) -> int:
        return len(self.tasks)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The level of each task: 0 for an entrance task, else one more than the highest level of its inputs."""
        levels: list[int] = []
        for task in self.tasks:
            levels.append(1 + max((levels[need] for need in task.needs), default=-1))
        return tuple(levels)

    @cached_property
    def priorities(self) -> tuple[int, ...]:
        """The priority of each task: the number of levels for entrance tasks, 1 for the last level."""
        count = max(self.levels, default=0) + 1
        return tuple(count - level for level in self.levels)

    @property
    def work(self) -> float:
        """The cost of all tasks together."""
        return sum(task.cost for task in self.tasks)

    def critical_path(self, seconds: Sequence[float] | None = None) -> tuple[float, tuple[int, ...]]:
        """Return the longest chain of dependent tasks: its length, and the tasks.

        Args:
            seconds: what each task takes; by default its cost.
        """
        times = [task.cost for task in self.tasks] if seconds is None else list(seconds)
        ends: list[float] = []
        before: list[int | None] = []
        for task, own in zip(self.tasks, times, strict=True):
            latest = max(task.needs, key=lambda need: (ends[need], -need), default=None)
            before.append(latest)
            ends.append(own + (0.0 if latest is None else ends[latest]))
        if not ends:
            return 0.0, ()
        last: int | None = max(range(len(ends)), key=lambda index: (ends[index], -index))
        assert last is not None
        length, path = ends[last], []
        while last is not None:
            path.append(last)
            last = before[last]
        return length, tuple(reversed(path))


class Dispatcher:
    """Algorithm 4.2, step by step, for one pass over a DAG.

    Lanes ``0 … threads - 1`` are the threads; lane ``threads`` is the one that asked for the pass: it runs the pinned
    tasks and no others. Not thread-safe.
    """

    def __init__(self, dag: TaskDag, threads: int) -> None:
        assert threads >= 1, threads
        self.dag = dag
        self.threads = threads
        self.left = len(dag)  # tasks that are not complete
        self._waits = [len(task.needs) for task in dag.tasks]
        self._queues: list[list[tuple[int, int]]] = [[] for _ in range(threads + 1)]  # heaps of (-priority, task)
        self._open = [0] * (threads + 1)  # tasks given to a lane and not complete
        self._load = [0.0] * (threads + 1)  # their cost
        entrances = [index for index, waits in enumerate(self._waits) if not waits]
        self._assign(entrances, None)

    def _assign(self, ready: Sequence[int], maker: int | None) -> None:
        """Give tasks whose inputs are complete to lanes (lines 8 and 9), in order of priority.

        Args:
            maker: the lane that made the last of their inputs.
        """
        priorities, loads = self.dag.priorities, self._load
        for index in sorted(ready, key=lambda index: (-priorities[index], index)):
            task = self.dag.tasks[index]
            if task.pinned:
                lane = self.threads
            else:
                lane = min(range(self.threads), key=lambda lane: (loads[lane], lane != maker, lane))
            loads[lane] += task.cost
            self._open[lane] += 1
            heapq.heappush(self._queues[lane], (-priorities[index], index))

    def next(self, lane: int) -> int | None:
        """Return the task that ``lane`` runs now; ``None`` if there is none for it."""
        if self._queues[lane]:
            return heapq.heappop(self._queues[lane])[1]
        if lane == self.threads:
            return None
        others = [other for other in range(self.threads) if self._queues[other]]
        if not others:
            return None
        busiest = max(others, key=lambda other: (self._load[other], -other))
        index = heapq.heappop(self._queues[busiest])[1]
        self._unload(busiest, index)
        self._load[lane] += self.dag.tasks[index].cost
        self._open[lane] += 1
        return index

    def complete(self, lane: int, index: int) -> None:
        """Note that ``lane`` has run task ``index``; assign the tasks that waited only for it."""
        self._unload(lane, index)
        self.left -= 1
        ready = []
        for follower in self.dag.followers[index]:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                ready.append(follower)
        if ready:
            self._assign(ready, lane)

    def _unload(self, lane: int, index: int) -> None:
        self._open[lane] -= 1
        # Exactly 0 for a lane without work, so that what rounding leaves does not decide between such lanes.
        self._load[lane] = self._load[lane] - self.dag.tasks[index].cost if self._open[lane] else 0.0


class LaneEvent(NamedTuple):
    """A task that ran on a lane from ``start`` to ``end``."""

    task: int
    lane: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """The work of all lanes in a pass.

    Attributes:
        events: one a task, in the order in which they ended.
        seconds: from the start of the pass to its end.
    """

    dag: TaskDag
    threads: int
    events: tuple[LaneEvent, ...]
    seconds: float

    @property
    def busy(self) -> tuple[float, ...]:
        """The seconds for which each thread has run tasks, without pinned ones."""
        busy = [0.0] * (self.threads + 1)
        for event in self.events:
            busy[event.lane] += event.end - event.start
        return tuple(busy[: self.threads])

    @property
    def balance(self) -> float:
        """Thread balance: the mean work of the threads relative to the busiest one; 1 is the best."""
        most = max(self.busy)
        return sum(self.busy) / self.threads / most if most else 1.0

    @property
    def waiting(self) -> float:
        """Waiting time: the seconds in which threads have run nothing, summed over all threads."""
        return self.threads * self.seconds - sum(self.busy)

    @property
    def critical_path(self) -> tuple[float, tuple[int, ...]]:
        """The critical path by the measured times, which is a lower bound of a pass with any number of threads."""
        took = [0.0] * len(self.dag)
        for event in self.events:
            took[event.task] = event.end - event.start
        return self.dag.critical_path(took)
