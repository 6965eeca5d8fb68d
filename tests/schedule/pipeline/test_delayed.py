"""Delayed gradients: which batch each stage runs backward, and how old its forward is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from bpt.schedule.instructions import Backward, Forward, Recv, Send, Update
from bpt.schedule.pipeline import Pipeline, delayed, simulate, streams
from bpt.schedule.pipeline.simulation import EqualTimes
from tests.schedule.pipeline.made import DELAYED, chain, make_flow, pipelines, text


def test_three_stages_with_data_for_the_last_and_a_skip_connection() -> None:
    stages = (0, 1, 2)
    flows = (
        make_flow(0, None, 2, stages, diff=False),
        make_flow(1, 0, 1, stages),
        make_flow(2, 1, 2, stages),
        make_flow(3, 0, 2, stages),
    )
    pipeline = Pipeline(stages, flows)
    expected = [
        [
            "D0 S0.0 F0.0 S1.0 S3.0",
            "D1 S0.1 F0.1 S1.1 S3.1",
            "D2 S0.2 F0.2 S1.2 S3.2 r1.0 r3.0 B0.0 X0 W U",
            "D3 S0.3 F0.3 S1.3 S3.3 r1.1 r3.1 B0.1 X0 W U",
        ],
        [
            "R1.0 F1.0 S2.0",
            "R1.1 F1.1 S2.1 r2.0 B1.0 s1.0 X1 W U",
            "R1.2 F1.2 S2.2 r2.1 B1.1 s1.1 X1 W U",
            "R1.3 F1.3 S2.3 r2.2 B1.2 s1.2 X1 W U",
        ],
        [
            "R0.0 R2.0 R3.0 F2.0 B2.0 s2.0 s3.0 X2 W U",
            "R0.1 R2.1 R3.1 F2.1 B2.1 s2.1 s3.1 X2 W U",
            "R0.2 R2.2 R3.2 F2.2 B2.2 s2.2 s3.2 X2 W U",
            "R0.3 R2.3 R3.3 F2.3 B2.3 s2.3 s3.3 X2 W U",
        ],
    ]
    assert [[text(delayed(pipeline, stage, number)) for number in range(4)] for stage in range(3)] == expected
    assert [text(stream) for stream in streams(DELAYED, pipeline, 4)] == [" ".join(its) for its in expected]


def test_a_run_that_goes_on_begins_anew() -> None:
    """In iteration 7 batch 6 is there if the run began at 6 or before."""
    pipeline = Pipeline((0, 0, 1), chain((0, 0, 1)).flows, broadcast=True, overlap=False)
    assert text(delayed(pipeline, 0, 7, first=6)) == "C D7 F0.7 F1.7 S0.7 r0.6 B1.6 B0.6 X1 X0 W U"
    assert text(delayed(pipeline, 0, 7, first=7)) == "C D7 F0.7 F1.7 S0.7"
    assert text(delayed(pipeline, 1, 7, first=7)) == "C R0.7 F2.7 B2.7 s0.7 X2 W U"


def test_one_stage_is_synchronous() -> None:
    assert text(delayed(chain((0,)), 0, 5)) == "D5 F0.5 B0.5 X0 W U"


@pytest.mark.parametrize("pipeline", [chain((0, 1, 0)), chain((1, 0)), chain((0, 1), micro_batches=2)])
def test_what_is_not_for_delayed_gradients(pipeline: Pipeline) -> None:
    with pytest.raises(AssertionError):
        delayed(pipeline, 0, 0)


@settings(max_examples=60, deadline=None)
@given(pipelines(contiguous=True, one_micro_batch=True))
def test_any_pipeline(pipeline: Pipeline) -> None:
    iterations, top = 7, pipeline.depth - 1
    every = streams(DELAYED, pipeline, iterations)
    trace = simulate(every, EqualTimes())
    for stage, stream in enumerate(every):
        back = max(iterations - (top - stage), 0)
        for segment in [number for number, its in enumerate(pipeline.stages) if its == stage]:
            forward = [its.micro for its in stream if isinstance(its, Forward) and its.segment == segment]
            backward = [its.micro for its in stream if isinstance(its, Backward) and its.segment == segment]
            assert (forward, backward) == (list(range(iterations)), list(range(back)))
            assert trace.peaks[segment] == top - stage + 1
            # Between a batch's forward and its backward the weights have changed up to n-1-i times.
            for batch in range(back):
                between = stream[stream.index(Forward(segment, batch)) : stream.index(Backward(segment, batch))]
                assert sum(isinstance(its, Update) for its in between) == min(batch, top - stage)
    # What is not received are diffs that a longer run would receive.
    sent = {str(its) for stream in every for its in stream if isinstance(its, Send)}
    got = {str(Send(its.transfer, its.micro, its.diff)) for stream in every for its in stream if isinstance(its, Recv)}
    assert sorted(sent - got) == sorted(trace.left)
    assert all(message.startswith("s") for message in trace.left)
