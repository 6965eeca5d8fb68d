"""Delayed gradients: batches overlap although there are no micro-batches (Hybrid / GABRA, Eq. 1 and 2).

In iteration t stage i of n (from 0) runs batch t forward, and backward the batch whose diff has come down to it by
then: batch t - (n-1-i). So no stage waits for those above it, and the last one uses gradients of the current batch. Two
stages of a segment each, iterations 0 to 2::

    D0 F0.0 S0.0            D1 F0.1 S0.1 r0.0 B0.0 X0 W U        D2 F0.2 S0.2 r0.1 B0.1 X0 W U
    R0.0 F1.0 B1.0 s0.0 …   R0.1 F1.1 B1.1 s0.1 X1 W U           R0.2 F1.2 B1.2 s0.2 X1 W U

This is not synchronous SGD: the weights have changed between the forward and the backward of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from bpt.schedule.instructions import Broadcast, Instruction, Update, Wait
from bpt.schedule.pipeline.model import Pipeline
from bpt.schedule.pipeline.steps import Steps


def delayed(pipeline: Pipeline, stage: int, iteration: int, first: int = 0) -> list[Instruction]:
    """One iteration of one stage. The number of a batch, in the place of a micro-batch's, is its iteration's.

    In the first n-1-i iterations of a run nothing has come back to stage i; it then updates nothing.

    Args:
        pipeline: contiguous; one pass and one micro-batch.
        first: the iteration at which this run began; gradients of earlier ones are lost.
    """
    assert pipeline.contiguous and pipeline.micros == 1, pipeline
    assert 0 <= first <= iteration, (first, iteration)
    return list(_yield_iteration(pipeline, stage, iteration, first))


def _yield_iteration(pipeline: Pipeline, stage: int, iteration: int, first: int) -> Iterator[Instruction]:
    steps = Steps(pipeline)
    segments = pipeline.blocks[stage].segments
    if pipeline.broadcast:
        yield Broadcast()
    if stage == 0:
        yield from steps.draw(range(iteration, iteration + 1))
    yield from steps.forward(segments, iteration)
    batch = iteration - (pipeline.depth - 1 - stage)
    if batch >= first:
        yield from steps.backward(segments, batch, last=True)
        yield from steps.exchange(segments)
        yield Wait()
        yield Update()
