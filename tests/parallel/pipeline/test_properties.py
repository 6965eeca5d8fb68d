"""What every exact schedule owes to every pipeline: any placement, any flows, passes and micro-batches."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.engine.instructions import (
    Backward,
    BackwardInputs,
    BackwardWeights,
    Broadcast,
    ExchangeGradients,
    Forward,
    Instruction,
    LoadBatch,
    Recv,
    Send,
    UpdateWeights,
    Wait,
)
from bpt.parallel.pipeline import Pipeline, instructions
from bpt.parallel.pipeline.simulation import EqualTimes, simulate
from tests.parallel.pipeline.made import EXACT, ONE_F_ONE_B, SEQUENTIAL, ZERO_BUBBLE, pipelines

EVERY = settings(max_examples=80, deadline=None)
Cases = st.tuples(st.sampled_from(EXACT), pipelines())


def made(rule: int, pipeline: Pipeline) -> list[list[Instruction]]:
    return [instructions(rule, pipeline, stage) for stage in range(pipeline.depth)]


def kinds_of_backward(rule: int) -> tuple[type[Backward] | type[BackwardInputs] | type[BackwardWeights], ...]:
    return (BackwardInputs, BackwardWeights) if rule == ZERO_BUBBLE else (Backward,)


def places(stream: list[Instruction]) -> dict[Instruction, int]:
    """Where each instruction stands; none stands there twice."""
    result = {instruction: place for place, instruction in enumerate(stream)}
    assert len(result) == len(stream)
    return result


@EVERY
@given(Cases)
def test_each_stage_does_its_own_work_once(case: tuple[int, Pipeline]) -> None:
    rule, pipeline = case
    micros = range(pipeline.passes * pipeline.micro_batches)
    for stage, stream in enumerate(made(rule, pipeline)):
        segments = [segment for segment, its in enumerate(pipeline.stages) if its == stage]
        expected: list[Instruction] = [Wait(), UpdateWeights(), *map(ExchangeGradients, segments)]
        expected += [Broadcast()] * pipeline.broadcast
        expected += [LoadBatch(number * pipeline.micro_batches) for number in range(pipeline.passes) if stage == 0]
        kinds = (Forward, *kinds_of_backward(rule))
        expected += [kind(segment, micro) for kind in kinds for segment in segments for micro in micros]
        for flow in pipeline.flows:
            for diff in (False, True)[: 1 + flow.diff]:
                if stage == (flow.to_stage if diff else flow.from_stage):
                    expected += [Send(flow.index, micro, diff) for micro in micros]
                if stage == (flow.from_stage if diff else flow.to_stage):
                    expected += [Recv(flow.index, micro, diff) for micro in micros]
        assert Counter(stream) == Counter(expected)


@EVERY
@given(Cases)
def test_nothing_comes_before_what_it_needs(case: tuple[int, Pipeline]) -> None:
    rule, pipeline = case
    backwards, ends = kinds_of_backward(rule)[0], kinds_of_backward(rule)[-1]
    for stage, stream in enumerate(made(rule, pipeline)):
        at = places(stream)
        segments = [segment for segment, its in enumerate(pipeline.stages) if its == stage]
        for micro in range(pipeline.micros):
            # On a stage the order is that of the net: blobs that stay there are no flows.
            forward = [at[Forward(segment, micro)] for segment in segments]
            backward = [at[backwards(segment, micro)] for segment in reversed(segments)]
            assert forward + backward == sorted(forward + backward)
            assert all(at[ends(segment, micro)] >= at[backwards(segment, micro)] for segment in segments)
            draw = at.get(LoadBatch(micro - micro % pipeline.micro_batches), -1)
            assert draw < forward[0]
            for flow in pipeline.flows:
                made_at = draw if flow.source is None else at.get(Forward(flow.source, micro), -1)
                if flow.from_stage == stage:
                    assert made_at < at[Send(flow.index, micro)]
                if flow.to_stage == stage:
                    assert at[Recv(flow.index, micro)] < at[Forward(flow.target, micro)]
                if flow.diff and flow.to_stage == stage:
                    assert at[backwards(flow.target, micro)] < at[Send(flow.index, micro, diff=True)]
                if flow.diff and flow.source is not None and flow.from_stage == stage:
                    assert at[Recv(flow.index, micro, diff=True)] < at[backwards(flow.source, micro)]
        for segment in segments:
            last = segment if pipeline.overlap else segments[0]
            assert at[ExchangeGradients(segment)] > at[ends(last, pipeline.micros - 1)]
        assert stream[-2:] == [Wait(), UpdateWeights()]
        assert not pipeline.broadcast or stream[0] == Broadcast()


@EVERY
@given(Cases)
def test_messages_of_a_flow_have_one_order_at_both_ends(case: tuple[int, Pipeline]) -> None:
    """That of the micro-batches, which is that of gradients, too: sums do not depend on the rule."""
    rule, pipeline = case
    for stream in made(rule, pipeline):
        for kind in (Send, Recv):
            for flow in pipeline.flows:
                for diff in (False, True):
                    micros = [
                        its.micro
                        for its in stream
                        if isinstance(its, kind) and its == kind(flow.index, its.micro, diff)
                    ]
                    assert micros == sorted(micros)
        for segment in range(len(pipeline.stages)):
            for backward in kinds_of_backward(rule):
                micros = [its.micro or 0 for its in stream if isinstance(its, backward) and its.segment == segment]
                assert micros == sorted(micros)


@EVERY
@given(Cases, st.integers(1, 3), st.sampled_from([0.0, 0.5, 4.0]))
def test_no_deadlock_and_no_message_left(case: tuple[int, Pipeline], iterations: int, transfer: float) -> None:
    rule, pipeline = case
    every = [stream * iterations for stream in made(rule, pipeline)]
    trace = simulate(every, EqualTimes(transfers=transfer, exchanges=3, updates=0.25))
    assert trace.left == ()
    assert len(trace.steps) == iterations and trace.steps[-1] == trace.time
    # A stage computes or waits.
    assert [busy + waiting for busy, waiting in zip(trace.busy, trace.waiting, strict=True)] == list(trace.ends)
    work = [3.0 * pipeline.micros * pipeline.stages.count(stage) + 0.25 for stage in range(pipeline.depth)]
    assert list(trace.busy) == [seconds * iterations for seconds in work]


@EVERY
@given(pipelines())
def test_memory(pipeline: Pipeline) -> None:
    """1F1B keeps n - i micro-batches in block i of n, SEQUENTIAL one, zero bubble n."""
    few = simulate(made(ONE_F_ONE_B, pipeline), EqualTimes())
    one = simulate(made(SEQUENTIAL, pipeline), EqualTimes())
    all_ = simulate(made(ZERO_BUBBLE, pipeline), EqualTimes())
    for number, block in enumerate(pipeline.blocks):
        assert 1 <= few.peak(block.segments) <= min(len(pipeline.blocks) - number, pipeline.micros)
        assert one.peak(block.segments) == 1
        assert all_.peak(block.segments) <= min(len(pipeline.blocks), pipeline.micros)
