"""Policies of pipelines: which of the tasks that could run a stage runs next."""

from __future__ import annotations

from typing import Protocol

from bpt.proto import bpt_pb2 as pb
from bpt.schedule.pipeline.progress import Progress, Task


class Rule(Protocol):
    """Decides for one stage at a time; of the tasks allowed, that with the least ``rank`` is run."""

    def allows(self, task: Task, progress: Progress) -> bool:
        """Whether ``task`` may run now, as far as the policy goes."""
        ...

    def rank(self, task: Task) -> tuple[int, ...]:
        """The order of preference."""
        ...


class GPipe:
    """All forward passes, then all backward passes (Huang et al. 2019, *GPipe*, section 2.3).

    With several passes (iter_size) this holds for each of them, so the memory is that of one. Of the blocks of a
    stage, that from which the way is longest goes first.
    """

    def allows(self, task: Task, progress: Progress) -> bool:
        size = progress.pipeline.micro_batches
        number = task.micro // size
        blocks = progress.on[progress.pipeline.blocks[task.block].stage]
        if task.backward:
            return all(progress.forward[block] >= (number + 1) * size for block in blocks)
        return all(progress.backward[block] >= number * size for block in blocks)

    def rank(self, task: Task) -> tuple[int, ...]:
        return (-task.block if task.backward else task.block,)


class OneForwardOneBackward:
    """1F1B: backward passes first, which frees memory (Narayanan et al. 2019, *PipeDream*, with a flush).

    Of n blocks, block i keeps n - i micro-batches at most. Older micro-batches go first, and of one, the block nearest
    to its backward: this frees memory as well. Passes (iter_size) follow each other without a gap.
    """

    def allows(self, task: Task, progress: Progress) -> bool:
        return task.backward or progress.in_flight(task.block) < len(progress.pipeline.blocks) - task.block

    def rank(self, task: Task) -> tuple[int, ...]:
        return (not task.backward, task.micro, -task.block)


class Sequential:
    """One micro-batch after the other goes through the whole net; nothing overlaps.

    Nothing but messages holds a stage up: one that waits for no diff goes on to the next micro-batch.
    """

    def allows(self, task: Task, progress: Progress) -> bool:
        return task.backward or min(progress.backward) == task.micro

    def rank(self, task: Task) -> tuple[int, ...]:
        return (not task.backward, task.block)


RULES: dict[int, Rule] = {
    pb.PipelineParameter.GPIPE: GPipe(),
    pb.PipelineParameter.ONE_F_ONE_B: OneForwardOneBackward(),
    pb.PipelineParameter.SEQUENTIAL: Sequential(),
}
