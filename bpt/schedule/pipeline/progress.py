"""How far each block of a pipeline has come."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from bpt.schedule.pipeline.model import Pipeline


class Task(NamedTuple):
    """All segments of a block, forward or backward, for a micro-batch."""

    block: int
    micro: int
    backward: bool


class Progress:
    """Counts what has run, and knows what must have run before a task.

    Each block takes the micro-batches in their order, forward and backward. So gradients add up in one order,
    whatever the schedule, and the messages of a flow are sent and received in one order.

    Attributes:
        forward: for each block, how many micro-batches have run forward.
        backward: for each block, how many of these have run backward, too.
        drawn: how many micro-batches stage 0 has drawn.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.on = [pipeline.blocks_on(stage) for stage in range(pipeline.depth)]
        count = len(pipeline.blocks)
        self.forward = [0] * count
        self.backward = [0] * count
        self.drawn = 0
        # For each block those whose forward must come before its own, and those whose backward must.
        self._below: list[set[int]] = [set() for _ in range(count)]
        self._above: list[set[int]] = [set() for _ in range(count)]
        self._find_needs()

    def _find_needs(self) -> None:
        block_of = [number for number, block in enumerate(self.pipeline.blocks) for _ in block.segments]
        for flow in self.pipeline.flows:
            if flow.source is not None:
                source, target = block_of[flow.source], block_of[flow.target]
                self._below[target].add(source)
                if flow.diff:
                    self._above[source].add(target)
        # What blocks of one stage hand to each other is no flow, so they go in the order of the net.
        for blocks in self.on:
            for lower, upper in pairwise(blocks):
                self._below[upper].add(lower)
                self._above[lower].add(upper)

    @property
    def done(self) -> bool:
        """Whether all has run."""
        return min(self.backward) == self.pipeline.micros

    def in_flight(self, block: int) -> int:
        """Micro-batches that ``block`` keeps for their backward."""
        return self.forward[block] - self.backward[block]

    def next(self, stage: int) -> list[Task]:
        """What a stage that is idle could run as far as data go, except that the batch may still have to be drawn."""
        tasks = []
        for block in self.on[stage]:
            micro = self.forward[block]
            if micro < self.pipeline.micros and all(self.forward[below] > micro for below in self._below[block]):
                tasks.append(Task(block, micro, backward=False))
            micro = self.backward[block]
            if self.in_flight(block) and all(self.backward[above] > micro for above in self._above[block]):
                tasks.append(Task(block, micro, backward=True))
        return tasks

    def undrawn(self, task: Task) -> bool:
        """Whether ``task`` needs a batch that is not drawn yet."""
        return task.micro >= self.drawn

    def complete(self, task: Task) -> None:
        """Note that ``task`` has run."""
        counts = self.backward if task.backward else self.forward
        assert counts[task.block] == task.micro, task
        counts[task.block] += 1
