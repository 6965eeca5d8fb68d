"""The schedulers of one stage of a pipeline: stages that go in step, and stages that run ahead of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import Instruction
from bpt.engine.scheduler import TEST_BATCH, AppliedBatch, Scheduler
from bpt.parallel.pipeline.model import Pipeline
from bpt.parallel.pipeline.stage_instructions import Steps, applied, delayed, instructions

DELAYED = pb.PipelineParameter.DELAYED


@dataclass(frozen=True)
class Pipelined:
    """The scheduler of one stage of a pipeline whose stages go in step.

    Attributes:
        rule: any value of the schema's ``PipelineParameter.Schedule`` except ``DELAYED``.
    """

    pipeline: Pipeline
    stage: int
    rule: int

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of an iteration."""
        return self.pipeline.micros

    @cached_property
    def _iteration(self) -> list[Instruction]:
        return instructions(self.rule, self.pipeline, self.stage)

    def training(self, iteration: int, first: int) -> list[Instruction]:
        """Return the instructions of one training iteration of this stage."""
        return self._iteration

    def forward(self) -> Iterator[Instruction]:
        """Return the instructions of a pass without a backward pass."""
        return forward_only(self.pipeline, self.stage)

    def applied(self, iteration: int, first: int) -> Sequence[AppliedBatch]:
        """Return the gradients that the update at the end of ``iteration`` applies."""
        return [(iteration, None)]


@dataclass(frozen=True)
class Delayed:
    """The scheduler of one stage of a pipeline with delayed gradients (Hybrid / GABRA, Eq. 1 and 2), by ``delayed``.

    Block i of n applies the gradient of the batch of n - 1 - i iterations ago. What has not come back when a run ends,
    or a snapshot of it is resumed, is lost; a continued run begins anew in this.
    """

    pipeline: Pipeline
    stage: int
    micro_batches: int = field(default=1, init=False)

    def training(self, iteration: int, first: int) -> list[Instruction]:
        """Return the instructions of one training iteration of this stage."""
        return delayed(self.pipeline, self.stage, iteration, first)

    def forward(self) -> Iterator[Instruction]:
        """Return the instructions of a pass without a backward pass."""
        return forward_only(self.pipeline, self.stage, TEST_BATCH)

    def applied(self, iteration: int, first: int) -> Sequence[AppliedBatch]:
        """Return the gradients that the update at the end of ``iteration`` applies."""
        return [(batch, block.segments) for batch, block in applied(self.pipeline, self.stage, iteration, first)]


def staged(pipeline: Pipeline, stage: int, rule: int) -> Scheduler:
    """Return the scheduler of a stage, by any ``rule`` of the schema's ``PipelineParameter``."""
    return Delayed(pipeline, stage) if rule == DELAYED else Pipelined(pipeline, stage, rule)


def forward_only(pipeline: Pipeline, stage: int, first: int = 0) -> Iterator[Instruction]:
    """Yield a forward pass of one stage: micro-batch by micro-batch through its blocks, in the order of the net.

    It goes block by block where one of them gathers micro-batches.

    Args:
        first: the number of the first micro-batch.
    """
    steps = Steps(pipeline)
    micros = range(first, first + pipeline.micro_batches)
    if stage == 0:
        yield from steps.draw(micros)
    own = pipeline.blocks_on(stage)
    rounds = [(number,) for number in own] if pipeline.gathers else [own]
    for numbers in rounds:
        for micro in micros:
            for number in numbers:
                parts = pipeline.parts(number)
                if not (micro - first) % parts:
                    yield from steps.forward(pipeline.blocks[number].segments, micro, parts)
