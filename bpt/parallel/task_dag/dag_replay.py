"""Replay of a task DAG on a virtual clock: how long a pass takes on so many threads, without running it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from bpt.parallel.task_dag.task_dag import Dispatcher, LaneEvent, TaskDag, Timeline


def replay(dag: TaskDag, threads: int, seconds: Sequence[float] | None = None) -> Timeline:
    """Run a DAG by Algorithm 4.2 (BPT-CNN) on a virtual clock, on equally fast threads.

    Args:
        seconds: what each task really takes; by default its cost.
    """
    times = [task.cost for task in dag.tasks] if seconds is None else list(seconds)
    assert len(times) == len(dag), (len(times), len(dag))
    dispatcher = Dispatcher(dag, threads)
    running: list[tuple[float, int, int, float]] = []  # (end, lane, task, start)
    idle = set(range(threads + 1))
    events: list[LaneEvent] = []
    now = 0.0

    def start(lane: int) -> None:
        index = dispatcher.next(lane)
        if index is not None:
            idle.discard(lane)
            heapq.heappush(running, (now + times[index], lane, index, now))

    for lane in range(threads + 1):
        start(lane)
    while running:
        now, lane, index, began = heapq.heappop(running)
        events.append(LaneEvent(index, lane, began, now))
        dispatcher.complete(lane, index)
        idle.add(lane)
        for free in (lane, *sorted(idle - {lane})):
            start(free)
    assert not dispatcher.left
    return Timeline(dag, threads, tuple(events), now)
