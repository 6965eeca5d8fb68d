"""The order of work on each stage: a list scheduler over all stages.

It runs the blocks of all stages on one clock, forward in time 1, backward in time 2, messages and draws in none. As
soon as a stage is idle, it begins the task that the rule prefers among those whose inputs are there. So the order in
which each stage works is one in which the whole has been run once: it cannot deadlock.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from bpt.schedule.pipeline.model import Pipeline
from bpt.schedule.pipeline.progress import Progress, Task
from bpt.schedule.pipeline.rules import Rule

FORWARD, BACKWARD = 1, 2


class DrawTask(NamedTuple):
    """A batch is drawn for the pass that begins with micro-batch ``micro``."""

    micro: int


Order = list[Task | DrawTask]


def orders(rule: Rule, pipeline: Pipeline) -> list[Order]:
    """What each stage does in an iteration, in order.

    A batch is drawn when the first stage that needs it would begin; if stage 0 is at work then, before that.
    """
    progress = Progress(pipeline)
    result: list[Order] = [[] for _ in range(pipeline.depth)]
    idle = set(range(pipeline.depth))
    running: list[tuple[int, int, Task]] = []  # (end, stage, task)
    now = 0
    while True:
        if _awaits_draw(rule, progress, idle):
            result[0].insert(len(result[0]) - (0 not in idle), DrawTask(progress.drawn))
            progress.drawn += pipeline.micro_batches
        for stage in sorted(idle):
            task = _choose(rule, progress, stage)
            if task is not None and not progress.undrawn(task):
                idle.discard(stage)
                result[stage].append(task)
                heapq.heappush(running, (now + (BACKWARD if task.backward else FORWARD), stage, task))
        if not running:
            break
        now = running[0][0]
        while running and running[0][0] == now:
            _, stage, task = heapq.heappop(running)
            progress.complete(task)
            idle.add(stage)
    assert progress.done, (progress.forward, progress.backward)
    return result


def _choose(rule: Rule, progress: Progress, stage: int) -> Task | None:
    allowed = [task for task in progress.next(stage) if rule.allows(task, progress)]
    return min(allowed, key=rule.rank, default=None)


def _awaits_draw(rule: Rule, progress: Progress, idle: set[int]) -> bool:
    """Whether a stage that is idle would begin with a batch that is not drawn yet."""
    if progress.drawn == progress.pipeline.micros:
        return False
    chosen = (_choose(rule, progress, stage) for stage in idle)
    return any(task is not None and progress.undrawn(task) for task in chosen)
