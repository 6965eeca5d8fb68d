"""The instructions of each stage of a pipeline.

Two stages of a segment each and two micro-batches, where flow 0 leads from stage 0 to stage 1 (capital: values)::

    GPIPE        D0 F0.0 S0.0 F0.1 S0.1  r0.0 B0.0 r0.1 B0.1 X0 W U
                 R0.0 F1.0 R0.1 F1.1  B1.0 s0.0 B1.1 s0.1 X1 W U
    ONE_F_ONE_B  the same on stage 0, and R0.0 F1.0 B1.0 s0.0 R0.1 F1.1 B1.1 s0.1 X1 W U
    SEQUENTIAL   D0 F0.0 S0.0 r0.0 B0.0  F0.1 S0.1 r0.1 B0.1 X0 W U
                 R0.0 F1.0 B1.0 s0.0  R0.1 F1.1 B1.1 s0.1 X1 W U
    ZERO_BUBBLE  D0 F0.0 S0.0 F0.1 S0.1  r0.0 I0.0 V0.0 r0.1 I0.1 V0.1 X0 W U
                 R0.0 F1.0 I1.0 s0.0 R0.1 F1.1 I1.1 s0.1 V1.0 V1.1 X1 W U

These four are exact: gradients are those of all micro-batches, at the same weights.

Delayed gradients: batches overlap although there are no micro-batches (Hybrid / GABRA, Eq. 1 and 2). The path through
the net has n blocks. A stage with several runs of layers has several blocks. In iteration t block i (from 0)
runs batch t forward, and backward the batch whose diff has come down to it by then: batch t - (n-1-i). So no block
waits for those above it, and the last one uses gradients of the current batch. A block needs block i-1 in the same
iteration and block i+1 in the one before: so nothing can wait for itself, wherever blocks lie.
Two stages of a segment each, iterations 0 to 2::

    D0 F0.0 S0.0 e0.0 T W U            D1 F0.1 S0.1 r0.0 B0.0 X0 e0.1 T0 W U   D2 F0.2 S0.2 r0.1 B0.1 X0 e0.2 T1 W U
    R0.0 F1.0 B1.0 s0.0 X1 T0 W U      R0.1 F1.1 B1.1 s0.1 X1 T1 W U           R0.2 F1.2 B1.2 s0.2 X1 T2 W U

All that is sent is received meanwhile (``e``), whether the run continues, tests or ends.

This is not synchronous SGD: the weights have changed between the forward and the backward of a batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import (
    Backward,
    BackwardInputs,
    BackwardWeights,
    Broadcast,
    ExchangeGradients,
    Forward,
    Instruction,
    LoadBatch,
    PostRecv,
    Recv,
    ReleaseBatch,
    Send,
    UpdateWeights,
    Wait,
)
from bpt.parallel.pipeline.model import Flow, Pipeline, StageBlock
from bpt.parallel.pipeline.pipeline_schedules import RULES, DrawTask, Order, TaskKind, orders


class Steps:
    """Yields the instructions of a pipeline's tasks, with their messages."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._overlap = pipeline.overlap
        self._into: defaultdict[int, list[Flow]] = defaultdict(list)
        self._out_of: defaultdict[int | None, list[Flow]] = defaultdict(list)
        for flow in sorted(pipeline.flows, key=lambda flow: flow.index):
            self._into[flow.target].append(flow)
            self._out_of[flow.source].append(flow)

    def draw(self, micros: range) -> Iterator[Instruction]:
        """Yield the drawing of a batch, and the messages of its parts to the other stages that read it."""
        yield LoadBatch(micros.start)
        for micro in micros:
            yield from (Send(flow.index, micro) for flow in self._out_of[None])

    def forward(self, segments: Iterable[int], micro: int, parts: int = 1) -> Iterator[Instruction]:
        """Yield the forward instructions of segments, from the bottom up.

        Args:
            parts: the number of micro-batches at a time, from ``micro`` on.
        """
        micros = range(micro, micro + parts)
        for segment in segments:
            yield from (Recv(flow.index, each) for each in micros for flow in self._into[segment])
            yield Forward(segment, micro)
            yield from (Send(flow.index, each) for each in micros for flow in self._out_of[segment])

    def backward(
        self,
        segments: range,
        micro: int,
        last: bool,
        parts: int = 1,
        kind: type[Backward] | type[BackwardInputs] = Backward,
    ) -> Iterator[Instruction]:
        """Yield the backward instructions of segments, from the top down.

        Args:
            last: this is their last micro-batch, after which their gradients may be exchanged.
            parts: as of ``forward``.
            kind: of the instructions.
        """
        micros = range(micro, micro + parts)
        for segment in reversed(segments):
            yield from (
                Recv(flow.index, each, diff=True) for each in micros for flow in self._out_of[segment] if flow.diff
            )
            yield kind(segment, micro)
            yield from (
                Send(flow.index, each, diff=True) for each in micros for flow in self._into[segment] if flow.diff
            )
            if last and self._overlap:
                yield ExchangeGradients(segment)

    def weights(self, segments: range, micro: int, last: bool) -> Iterator[Instruction]:
        """Yield the second parts of backward passes, from the top down; ``last`` is as of ``backward``."""
        for segment in reversed(segments):
            yield BackwardWeights(segment, micro)
            if last and self._overlap:
                yield ExchangeGradients(segment)

    def expect(self, segments: Iterable[int], sent: Callable[[Flow], int], first: int) -> Iterator[Instruction]:
        """Yield the receipts of diffs that the stages above have begun to send.

        Args:
            sent: the last batch whose diff has left, of a flow.
            first: the first batch of the run.
        """
        for segment in segments:
            for flow in self._out_of[segment]:
                if flow.diff and sent(flow) >= first:
                    yield PostRecv(flow.index, sent(flow))

    def exchange(self, segments: Iterable[int]) -> Iterator[Instruction]:
        """Yield the exchanges that follow all backward passes, where they do not overlap."""
        if not self._overlap:
            yield from map(ExchangeGradients, sorted(segments, reverse=True))


def instructions(rule: int, pipeline: Pipeline, stage: int) -> list[Instruction]:
    """Yield the instructions of one iteration of one stage.

    Values are received right before the forward that reads them first and sent right after the one that makes them;
    diffs are received right before the backward of the segment that made the values and sent right after that which
    completes them. Stage 0 draws a batch before the first forward of each pass.

    Args:
        rule: any value of the schema's ``PipelineParameter.Schedule`` except ``DELAYED``.
    """
    return _of_stage(pipeline, stage, _ordered(rule, pipeline)[stage])


def streams(rule: int, pipeline: Pipeline, iterations: int = 1) -> list[list[Instruction]]:
    """Return the instructions of each stage in ``iterations`` iterations from a run's start on, by any rule."""
    stages = range(pipeline.depth)
    if rule == pb.PipelineParameter.DELAYED:
        return [[step for number in range(iterations) for step in delayed(pipeline, stage, number)] for stage in stages]
    ordered = _ordered(rule, pipeline)
    return [_of_stage(pipeline, stage, ordered[stage]) * iterations for stage in stages]


@lru_cache(maxsize=16)  # each stage asks for them, and so do plans that differ in links
def _ordered(rule: int, pipeline: Pipeline) -> list[Order]:
    return orders(RULES[rule], pipeline)


def _of_stage(pipeline: Pipeline, stage: int, order: Order) -> list[Instruction]:
    return list(_yield_iteration(pipeline, stage, order))


def _yield_iteration(pipeline: Pipeline, stage: int, order: Order) -> Iterator[Instruction]:
    steps = Steps(pipeline)
    if pipeline.broadcast:
        yield Broadcast()
    for task in order:
        if isinstance(task, DrawTask):
            yield from steps.draw(range(task.micro, task.micro + pipeline.micro_batches))
            continue
        segments, parts = pipeline.blocks[task.block].segments, pipeline.parts(task.block)
        last = task.micro + parts == pipeline.micros
        match task.kind:
            case TaskKind.FORWARD:
                yield from steps.forward(segments, task.micro, parts)
            case TaskKind.BACKWARD:
                yield from steps.backward(segments, task.micro, last, parts)
            case TaskKind.INPUTS:
                yield from steps.backward(segments, task.micro, False, parts, BackwardInputs)
            case TaskKind.WEIGHTS:
                yield from steps.weights(segments, task.micro, last)
    yield from steps.exchange(segment for segment, its in enumerate(pipeline.stages) if its == stage)
    yield Wait()
    yield UpdateWeights()


def delayed(pipeline: Pipeline, stage: int, iteration: int, first: int = 0) -> list[Instruction]:
    """Yield one iteration of one stage; a batch's number, its iteration's, is in the place of a micro-batch's.

    In the first n-1-i iterations of a run nothing has come back to block i; Update then has nothing to apply there.

    Args:
        pipeline: of one pass and one micro-batch.
        first: the iteration at which this run began; gradients of earlier ones are lost.
    """
    assert pipeline.micros == 1, pipeline
    assert 0 <= first <= iteration, (first, iteration)
    return list(_yield_delayed(pipeline, stage, iteration, first))


def _yield_delayed(pipeline: Pipeline, stage: int, iteration: int, first: int) -> Iterator[Instruction]:
    steps = Steps(pipeline)
    if pipeline.broadcast:
        yield Broadcast()
    if stage == 0:
        yield from steps.draw(range(iteration, iteration + 1))
    came = [segment for batch, block in applied(pipeline, stage, iteration, first) for segment in block.segments]
    for number in pipeline.blocks_on(stage):
        segments = pipeline.blocks[number].segments
        yield from steps.forward(segments, iteration)
        if segments[0] in came:
            yield from steps.backward(segments, iteration - pipeline.delay(number), last=True)
    yield from steps.exchange(came)
    own = (segment for number in pipeline.blocks_on(stage) for segment in pipeline.blocks[number].segments)
    yield from steps.expect(own, lambda flow: iteration - pipeline.delay(pipeline.block_of[flow.target]), first)
    last = iteration - pipeline.delay(pipeline.blocks_on(stage)[0])
    yield ReleaseBatch(last if last >= first else None)
    yield Wait(in_step=False)
    yield UpdateWeights()


def applied(pipeline: Pipeline, stage: int, iteration: int, first: int) -> list[tuple[int, StageBlock]]:
    """Return the blocks of a stage with a gradient at the end of an iteration, and its batch, under ``delayed``."""
    batches = [(iteration - pipeline.delay(number), pipeline.blocks[number]) for number in pipeline.blocks_on(stage)]
    return [(batch, block) for batch, block in batches if batch >= first]
