"""The instructions of each stage of a pipeline.

Two stages of a segment each and two micro-batches, where flow 0 leads from stage 0 to stage 1 (capital: values)::

    GPIPE        D0 F0.0 S0.0 F0.1 S0.1  r0.0 B0.0 r0.1 B0.1 X0 W U
                 R0.0 F1.0 R0.1 F1.1  B1.0 s0.0 B1.1 s0.1 X1 W U
    ONE_F_ONE_B  the same on stage 0, and R0.0 F1.0 B1.0 s0.0 R0.1 F1.1 B1.1 s0.1 X1 W U
    SEQUENTIAL   D0 F0.0 S0.0 r0.0 B0.0  F0.1 S0.1 r0.1 B0.1 X0 W U
                 R0.0 F1.0 B1.0 s0.0  R0.1 F1.1 B1.1 s0.1 X1 W U

These three are exact: gradients are those of all micro-batches, at the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator

from bpt.proto import bpt_pb2 as pb
from bpt.schedule.instructions import Broadcast, Instruction, Update, Wait
from bpt.schedule.pipeline.delayed import delayed
from bpt.schedule.pipeline.model import Pipeline
from bpt.schedule.pipeline.order import DrawTask, Order, orders
from bpt.schedule.pipeline.rules import RULES
from bpt.schedule.pipeline.steps import Steps


def instructions(rule: int, pipeline: Pipeline, stage: int) -> list[Instruction]:
    """One iteration of one stage.

    Values are received right before the forward that reads them first and sent right after the one that makes them;
    diffs are received right before the backward of the segment that made the values and sent right after that which
    completes them. Stage 0 draws a batch before the first forward of each pass.

    Args:
        rule: ``SEQUENTIAL``, ``GPIPE`` or ``ONE_F_ONE_B`` of the schema's ``PipelineParameter``.
    """
    return _of_stage(pipeline, stage, orders(RULES[rule], pipeline)[stage])


def streams(rule: int, pipeline: Pipeline, iterations: int = 1) -> list[list[Instruction]]:
    """What each stage does in ``iterations`` iterations from the start of a run on, by any rule of the schema."""
    stages = range(pipeline.depth)
    if rule == pb.PipelineParameter.DELAYED:
        return [[step for number in range(iterations) for step in delayed(pipeline, stage, number)] for stage in stages]
    ordered = orders(RULES[rule], pipeline)
    return [_of_stage(pipeline, stage, ordered[stage]) * iterations for stage in stages]


def _of_stage(pipeline: Pipeline, stage: int, order: Order) -> list[Instruction]:
    return list(_yield_iteration(pipeline, stage, order))


def _yield_iteration(pipeline: Pipeline, stage: int, order: Order) -> Iterator[Instruction]:
    steps = Steps(pipeline)
    if pipeline.broadcast:
        yield Broadcast()
    for task in order:
        if isinstance(task, DrawTask):
            yield from steps.draw(range(task.micro, task.micro + pipeline.micro_batches))
        elif task.backward:
            last = task.micro == pipeline.micros - 1
            yield from steps.backward(pipeline.blocks[task.block].segments, task.micro, last)
        else:
            yield from steps.forward(pipeline.blocks[task.block].segments, task.micro)
    yield from steps.exchange(segment for segment, its in enumerate(pipeline.stages) if its == stage)
    yield Wait()
    yield Update()
