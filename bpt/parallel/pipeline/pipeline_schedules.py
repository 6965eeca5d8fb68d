"""Pipeline schedules GPipe, 1F1B, zero bubble and SEQUENTIAL: a list scheduler gives each stage its order of work.

It runs the blocks of all stages on one clock, forward in time 1, backward in time 2 (or in two parts of time 1 each),
messages and draws in none. As soon as a stage is idle, it begins the task that the rule prefers among those whose
inputs are there. The scheduler plays all stages once, so the resulting orders cannot deadlock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple, Protocol

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.pipeline.model import Pipeline


class TaskKind(IntEnum):
    """The pass of a task: a backward pass is one task, or two, one for inputs and a later one for weights."""

    FORWARD = 0
    BACKWARD = 1
    INPUTS = 2
    WEIGHTS = 3


FORWARD, BACKWARD, INPUTS, WEIGHTS = TaskKind
SECONDS = {FORWARD: 1, BACKWARD: 2, INPUTS: 1, WEIGHTS: 1}


class StageTask(NamedTuple):
    """The segments of a block in one pass, for a micro-batch; or for all of a pass, named by its first."""

    block: int
    micro: int
    kind: TaskKind


class OrderProgress:
    """Tracks which tasks have run, and what each task depends on.

    Each block takes the micro-batches in their order, forward and backward. So gradients add up in one order,
    whatever the schedule, and the messages of a flow are sent and received in one order.

    Attributes:
        forward: for each block, how many micro-batches have run forward.
        backward: for each block, how many of these have run backward, too, at least for its inputs.
        ended: for each block, how many of these have nothing left to run.
        drawn: how many micro-batches stage 0 has drawn.
        touched: for each block, the stages that may be able to run other tasks when it has run one.
    """

    def __init__(self, pipeline: Pipeline, backward: TaskKind = BACKWARD) -> None:
        self.pipeline = pipeline
        self._backward_kind = backward
        self.on = [pipeline.blocks_on(stage) for stage in range(pipeline.depth)]
        count = len(pipeline.blocks)
        self.forward = [0] * count
        self.backward = [0] * count
        self.ended = [0] * count if backward == INPUTS else self.backward
        self.drawn = 0
        # For each block those whose forward must come before its own, and those whose backward must.
        self._below: list[set[int]] = [set() for _ in range(count)]
        self._above: list[set[int]] = [set() for _ in range(count)]
        self._find_needs()
        # What completing a task of a block may allow: tasks of itself, and of those that need it.
        self._needing: list[set[int]] = [{block} for block in range(count)]
        for block in range(count):
            for needed in self._below[block] | self._above[block]:
                self._needing[needed].add(block)
        # The stages of these.
        self.touched = [{pipeline.blocks[block].stage for block in needing} for needing in self._needing]
        self._ready: list[set[tuple[int, TaskKind]]] = [set() for _ in range(pipeline.depth)]  # of each stage
        for block in range(count):
            self._look_at(block)

    def _find_needs(self) -> None:
        block_of = self.pipeline.block_of
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
        """Whether all tasks have run."""
        return min(self.ended) == self.pipeline.micros

    def in_flight(self, block: int) -> int:
        """Return the number of micro-batches that ``block`` keeps for their backward."""
        return self.forward[block] - self.backward[block]

    def kept(self, block: int) -> int:
        """Return the number of micro-batches that ``block`` keeps for any part of their backward."""
        return self.forward[block] - self.ended[block]

    def next(self, stage: int) -> list[StageTask]:
        """Return what an idle stage could run as far as data go; its batch may still have to be drawn."""
        return [StageTask(block, self._counts(kind)[block], kind) for block, kind in sorted(self._ready[stage])]

    def _counts(self, kind: TaskKind) -> list[int]:
        """Return how many tasks of a kind have run, by block."""
        match kind:
            case TaskKind.FORWARD:
                return self.forward
            case TaskKind.WEIGHTS:
                return self.ended
        return self.backward

    def _look_at(self, block: int) -> None:
        """Find out which tasks of ``block`` could run."""
        ready, parts = self._ready[self.pipeline.blocks[block].stage], self.pipeline.parts(block)
        ready -= {(block, kind) for kind in TaskKind}
        micro = self.forward[block]
        behind = micro + parts
        if micro < self.pipeline.micros and all(self.forward[below] >= behind for below in self._below[block]):
            ready.add((block, FORWARD))
        behind = self.backward[block] + parts
        if self.in_flight(block) and all(self.backward[above] >= behind for above in self._above[block]):
            ready.add((block, self._backward_kind))
        if self.ended[block] < self.backward[block]:
            ready.add((block, WEIGHTS))

    def undrawn(self, task: StageTask) -> bool:
        """Return whether ``task`` needs a batch that is not drawn yet."""
        return task.micro >= self.drawn

    def complete(self, task: StageTask) -> None:
        """Note that ``task`` has run."""
        counts = self._counts(task.kind)
        assert counts[task.block] == task.micro, task
        counts[task.block] += self.pipeline.parts(task.block)
        for block in self._needing[task.block]:
            self._look_at(block)


class OrderRule(Protocol):
    """A policy for one stage at a time; of the allowed tasks, the one with the least ``rank`` runs.

    Attributes:
        looks_around: at what other stages have done, too.
        backward: BACKWARD, or INPUTS if a later task computes the gradients of weights.
    """

    looks_around: bool
    backward: TaskKind

    def allows(self, task: StageTask, progress: OrderProgress) -> bool:
        """Return whether the policy lets ``task`` run now."""
        ...

    def rank(self, task: StageTask) -> tuple[int, ...]:
        """Return the order of preference."""
        ...


class GPipe:
    """GPipe: all forward passes, then all backward passes (Huang et al. 2019, *GPipe*, section 2.3).

    With several passes (iter_size) this holds for each of them, so the memory is that of one. A stage first runs
    its block with the longest remaining path.
    """

    looks_around = False
    backward = BACKWARD

    def allows(self, task: StageTask, progress: OrderProgress) -> bool:
        size = progress.pipeline.micro_batches
        number = task.micro // size
        blocks = progress.on[progress.pipeline.blocks[task.block].stage]
        # Of a stage the last block is the last to run forward, and the first one to run backward.
        if task.kind:
            return progress.forward[blocks[-1]] >= (number + 1) * size
        return progress.backward[blocks[0]] >= number * size

    def rank(self, task: StageTask) -> tuple[int, ...]:
        return (-task.block if task.kind else task.block,)


class OneForwardOneBackward:
    """1F1B: backward passes first, which frees memory (Narayanan et al. 2019, *PipeDream*, with a flush).

    Of n blocks, block i keeps n - i micro-batches at most. Older micro-batches go first. Within one micro-batch, the
    block whose backward comes soonest goes first, which frees memory, too. Passes (iter_size)
    follow each other without a gap.
    """

    looks_around = False
    backward = BACKWARD

    def allows(self, task: StageTask, progress: OrderProgress) -> bool:
        return bool(task.kind) or progress.in_flight(task.block) < len(progress.pipeline.blocks) - task.block

    def rank(self, task: StageTask) -> tuple[int, ...]:
        return (not task.kind, task.micro, -task.block)


class ZeroBubble:
    """ZB-H1: 1F1B with a backward pass in two parts (Qi et al. 2024, *Zero Bubble Pipeline Parallelism*, section 2).

    Diffs of inputs come first, since other stages wait for them. Gradients of weights fill the time in which a stage
    would wait. Of n blocks, block i keeps n - i micro-batches at most, as under 1F1B. For the last micro-batches,
    block i keeps up to i more and delays their weight gradients, so that their diffs reach block 0 sooner: n at most,
    as many as block 0 keeps under 1F1B. With parts of equal times, an iteration of M micro-batches then takes
    3 M + n - 1 parts, where 1F1B takes 3 (M + n - 1).
    """

    looks_around = False
    backward = INPUTS

    def allows(self, task: StageTask, progress: OrderProgress) -> bool:
        if task.kind:
            return True
        own = len(progress.pipeline.blocks) - task.block
        late = max(task.micro - (progress.pipeline.micros - 1 - task.block), 0)
        return progress.in_flight(task.block) < own and progress.kept(task.block) < own + late

    def rank(self, task: StageTask) -> tuple[int, ...]:
        return (_URGENCY[task.kind], task.micro, -task.block)


_URGENCY = {INPUTS: 0, FORWARD: 1, WEIGHTS: 2}


class Sequential:
    """Sequential order: one micro-batch after the other goes through the whole net; nothing overlaps.

    Only messages delay a stage: one that waits for no diff continues with the next micro-batch.
    """

    looks_around = True
    backward = BACKWARD

    def allows(self, task: StageTask, progress: OrderProgress) -> bool:
        return bool(task.kind) or min(progress.backward) == task.micro

    def rank(self, task: StageTask) -> tuple[int, ...]:
        return (not task.kind, task.block)


RULES: dict[int, OrderRule] = {
    pb.PipelineParameter.GPIPE: GPipe(),
    pb.PipelineParameter.ONE_F_ONE_B: OneForwardOneBackward(),
    pb.PipelineParameter.SEQUENTIAL: Sequential(),
    pb.PipelineParameter.ZERO_BUBBLE: ZeroBubble(),
}


class DrawTask(NamedTuple):
    """The drawing of a batch for the pass that begins with micro-batch ``micro``."""

    micro: int


Order = list[StageTask | DrawTask]


def orders(rule: OrderRule, pipeline: Pipeline) -> list[Order]:
    """Return what each stage does in an iteration, in order.

    Stage 0 draws a batch when the first stage that needs it could begin. If stage 0 runs a task at that moment, the
    draw is placed before that task.
    """
    progress = OrderProgress(pipeline, rule.backward)
    chosen = _Choices(rule, progress)
    result: list[Order] = [[] for _ in range(pipeline.depth)]
    idle = set(range(pipeline.depth))
    running: list[tuple[int, int, StageTask]] = []  # (end, stage, task)
    now = 0
    while True:
        if _awaits_draw(progress, map(chosen.of, idle)):
            result[0].insert(len(result[0]) - (0 not in idle), DrawTask(progress.drawn))
            progress.drawn += pipeline.micro_batches
        for stage in sorted(idle):
            task = chosen.of(stage)
            if task is not None and not progress.undrawn(task):
                idle.discard(stage)
                result[stage].append(task)
                heapq.heappush(running, (now + SECONDS[task.kind], stage, task))
        if not running:
            break
        now = running[0][0]
        while running and running[0][0] == now:
            _, stage, task = heapq.heappop(running)
            progress.complete(task)
            chosen.forget(range(pipeline.depth) if rule.looks_around else progress.touched[task.block])
            idle.add(stage)
    assert progress.done, (progress.forward, progress.backward, progress.ended)
    return result


class _Choices:
    """The task that each stage would run next; kept until something changes that it depends on."""

    def __init__(self, rule: OrderRule, progress: OrderProgress) -> None:
        self._rule = rule
        self._progress = progress
        self._found: dict[int, StageTask | None] = {}

    def of(self, stage: int) -> StageTask | None:
        """Return the task of a stage; ``None`` if nothing is allowed."""
        if stage not in self._found:
            allowed = [task for task in self._progress.next(stage) if self._rule.allows(task, self._progress)]
            self._found[stage] = min(allowed, key=self._rule.rank, default=None)
        return self._found[stage]

    def forget(self, stages: Iterable[int]) -> None:
        """Drop the choices that depend on what has just run."""
        for stage in stages:
            self._found.pop(stage, None)


def _awaits_draw(progress: OrderProgress, chosen: Iterable[StageTask | None]) -> bool:
    """Return whether an idle stage would begin with a batch that is not drawn yet."""
    if progress.drawn == progress.pipeline.micros:
        return False
    return any(task is not None and progress.undrawn(task) for task in chosen)
