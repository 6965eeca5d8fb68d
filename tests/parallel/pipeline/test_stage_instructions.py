"""Instructions of pipelines' stages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.engine.instructions import Backward, Forward, Recv, Send, UpdateWeights
from bpt.parallel.pipeline import Pipeline, delayed, instructions, streams
from bpt.parallel.pipeline.simulation import EqualTimes, simulate
from tests.parallel.pipeline import made


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            made.GPIPE,
            [
                "D0 F0.0 S0.0 F0.1 S0.1 r0.0 B0.0 r0.1 B0.1 X0 W U",
                "R0.0 F1.0 R0.1 F1.1 B1.0 s0.0 B1.1 s0.1 X1 W U",
            ],
        ),
        (
            made.ONE_F_ONE_B,
            [
                "D0 F0.0 S0.0 F0.1 S0.1 r0.0 B0.0 r0.1 B0.1 X0 W U",
                "R0.0 F1.0 B1.0 s0.0 R0.1 F1.1 B1.1 s0.1 X1 W U",
            ],
        ),
        (
            made.SEQUENTIAL,
            [
                "D0 F0.0 S0.0 r0.0 B0.0 F0.1 S0.1 r0.1 B0.1 X0 W U",
                "R0.0 F1.0 B1.0 s0.0 R0.1 F1.1 B1.1 s0.1 X1 W U",
            ],
        ),
        (
            made.ZERO_BUBBLE,
            [
                "D0 F0.0 S0.0 F0.1 S0.1 r0.0 I0.0 V0.0 r0.1 I0.1 V0.1 X0 W U",
                "R0.0 F1.0 I1.0 s0.0 R0.1 F1.1 I1.1 s0.1 V1.0 V1.1 X1 W U",
            ],
        ),
    ],
)
def test_two_stages(rule: int, expected: list[str]) -> None:
    pipeline = made.chain((0, 1), micro_batches=2)
    assert [made.text(instructions(rule, pipeline, stage)) for stage in range(2)] == expected
    assert [made.text(stream) for stream in streams(rule, pipeline, iterations=2)] == [
        f"{its} {its}" for its in expected
    ]


# Huang et al. 2019, Fig. 2 (c); the backward passes in the order of the micro-batches.
GPIPE_ORDER = "F{0}.0 F{0}.1 F{0}.2 F{0}.3 B{0}.0 B{0}.1 B{0}.2 B{0}.3 X{0} W U"
# Narayanan et al. 2021 (Megatron-LM), Fig. 4: n stages below the top, n + 1 forward passes come before the first
# backward pass.
ONE_F_ONE_B_ORDERS = [
    "F{0}.0 B{0}.0 F{0}.1 B{0}.1 F{0}.2 B{0}.2 F{0}.3 B{0}.3 X{0} W U",
    "F{0}.0 F{0}.1 B{0}.0 F{0}.2 B{0}.1 F{0}.3 B{0}.2 B{0}.3 X{0} W U",
    "F{0}.0 F{0}.1 F{0}.2 B{0}.0 F{0}.3 B{0}.1 B{0}.2 B{0}.3 X{0} W U",
    "F{0}.0 F{0}.1 F{0}.2 F{0}.3 B{0}.0 B{0}.1 B{0}.2 B{0}.3 X{0} W U",
]
# ZB-H1 of Qi et al. 2024 on 4 stages with 8 micro-batches, by hand: each stage works without a gap from its first pass
# backward on, and stage 0 waits 3 units of time before it. The kinds are forward, inputs and weights.
ZERO_BUBBLE_ORDERS = [
    "FFFF IVF IVF IVF IVF IV IV IV IV",
    "FFF IVF IVF IVF IVF IF IV IV IV V",
    "FF IVF IVF IVF IVF IF IF IV IV VV",
    "F IVF IVF IVF IVF IF IF IF I VVVV",
]
SEQUENTIAL_ORDER = "F{0}.0 B{0}.0 F{0}.1 B{0}.1 F{0}.2 B{0}.2 F{0}.3 B{0}.3 X{0} W U"


def test_order_of_zero_bubble() -> None:
    pipeline = made.chain(range(4), micro_batches=8)
    for stage, order in enumerate(ZERO_BUBBLE_ORDERS):
        counts = Counter[str]()
        expected = ["D0"] * (not stage)
        for kind in order.replace(" ", ""):
            expected.append(f"{kind}{stage}.{counts[kind]}")
            counts[kind] += 1
        found = made.text(instructions(made.ZERO_BUBBLE, pipeline, stage), messages=False)
        assert found.split() == [*expected, f"X{stage}", "W", "U"]


@pytest.mark.parametrize(("stages", "micros"), [(2, 4), (4, 8), (4, 4), (3, 5), (8, 16)])
def test_bubble_of_zero_bubble(stages: int, micros: int) -> None:
    """Of parts of equal times, stages wait for one each, and under 1F1B for three."""
    pipeline = made.chain(range(stages), micro_batches=micros)
    split, plain = (simulate(streams(rule, pipeline), EqualTimes()) for rule in (made.ZERO_BUBBLE, made.ONE_F_ONE_B))
    assert (split.time, plain.time) == (3 * micros + stages - 1, 3 * (micros + stages - 1))
    assert split.bubble <= 0.5 * plain.bubble
    assert max(split.peaks.values()) == max(plain.peaks.values())


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_textbook_orders_of_four_micro_batches(stages: int) -> None:
    pipeline = made.chain(range(stages), micro_batches=4)
    for stage in range(stages):
        begin = "" if stage else "D0 "
        for rule, order in (
            (made.GPIPE, GPIPE_ORDER),
            (made.ONE_F_ONE_B, ONE_F_ONE_B_ORDERS[stages - 1 - stage]),
            (made.SEQUENTIAL, SEQUENTIAL_ORDER),
        ):
            assert made.text(instructions(rule, pipeline, stage), messages=False) == begin + order.format(stage)


def test_a_segment_that_gathers_runs_once_for_all_micro_batches() -> None:
    """Segment 1, on the second of two stages: it waits for both micro-batches, forward and backward."""
    pipeline = Pipeline((0, 1, 1), made.chain((0, 1, 1)).flows, 1, 2, gathers=frozenset([1]))
    assert [made.text(instructions(made.GPIPE, pipeline, stage)) for stage in range(2)] == [
        "D0 F0.0 S0.0 F0.1 S0.1 r0.0 B0.0 r0.1 B0.1 X0 W U",
        "R0.0 R0.1 F1.0 F2.0 F2.1 B2.0 B2.1 X2 B1.0 s0.0 s0.1 X1 W U",
    ]


@settings(deadline=None)
@given(made.pipelines(), st.data())
def test_any_segments_may_gather(pipeline: Pipeline, data: st.DataObject) -> None:
    """GPIPE comes to an end, whatever gathers; such segments run once a pass, the others once a micro-batch."""
    gathers = data.draw(st.frozensets(st.integers(0, len(pipeline.stages) - 1)))
    gathering = replace(pipeline, gathers=gathers)
    every = streams(made.GPIPE, gathering, 2)
    simulate(every, EqualTimes())
    for segment in range(len(pipeline.stages)):
        runs = 2 * pipeline.passes * (1 if segment in gathers else pipeline.micro_batches)
        for kind in (Forward, Backward):
            assert sum(isinstance(its, kind) and its.segment == segment for stream in every for its in stream) == runs


@settings(deadline=None)
@given(stages=st.integers(1, 6), micros=st.integers(1, 12))
def test_order_of_1f1b(stages: int, micros: int) -> None:
    """Some forward passes, then backward and forward in turn, then the rest of the backward passes."""
    pipeline = made.chain(range(stages), micro_batches=micros)
    for stage in range(stages):
        ahead = min(stages - stage, micros)
        expected = [f"F{stage}.{micro}" for micro in range(ahead)]
        for micro in range(micros):
            expected.append(f"B{stage}.{micro}")
            if micro + ahead < micros:
                expected.append(f"F{stage}.{micro + ahead}")
        done = made.text(instructions(made.ONE_F_ONE_B, pipeline, stage), messages=False).removeprefix("D0 ")
        assert done == " ".join([*expected, f"X{stage}", "W", "U"])


def test_skip_connections_data_and_several_segments_on_a_stage() -> None:
    """Stage 0 has segments 0 and 1, and both feed segment 3, one without a diff; labels (flow 9) go to segment 3."""
    stages = (0, 0, 1, 1)
    flows = (
        made.make_flow(9, None, 3, stages, diff=False),
        made.make_flow(4, 1, 2, stages),
        made.make_flow(2, 0, 3, stages),
        made.make_flow(7, 1, 3, stages, diff=False),
    )
    pipeline = Pipeline(stages, flows, micro_batches=2)
    assert [made.text(instructions(made.SEQUENTIAL, pipeline, stage)) for stage in range(2)] == [
        "D0 S9.0 S9.1 F0.0 S2.0 F1.0 S4.0 S7.0 r4.0 B1.0 r2.0 B0.0 "
        "F0.1 S2.1 F1.1 S4.1 S7.1 r4.1 B1.1 X1 r2.1 B0.1 X0 W U",
        "R4.0 F2.0 R2.0 R7.0 R9.0 F3.0 B3.0 s2.0 B2.0 s4.0 R4.1 F2.1 R2.1 R7.1 R9.1 F3.1 B3.1 s2.1 X3 B2.1 s4.1 X2 W U",
    ]


def test_broadcast_first_and_exchange_last_without_overlap() -> None:
    pipeline = Pipeline((0, 0, 0), (), passes=2, broadcast=True, overlap=False)
    expected = "C D0 F0.0 F1.0 F2.0 B2.0 B1.0 B0.0 D1 F0.1 F1.1 F2.1 B2.1 B1.1 B0.1 X2 X1 X0 W U"
    whole = [rule for rule in made.EXACT if rule != made.ZERO_BUBBLE]
    assert {made.text(instructions(rule, pipeline, 0)) for rule in whole} == {expected}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (made.GPIPE, "D0 F0.0 F0.1 B0.0 B0.1 D2 F0.2 F0.3 B0.2 B0.3 X0 W U"),  # the memory of one pass
        (made.ONE_F_ONE_B, "D0 F0.0 F0.1 B0.0 D2 F0.2 B0.1 F0.3 B0.2 B0.3 X0 W U"),  # no gap between passes
        (made.SEQUENTIAL, "D0 F0.0 B0.0 F0.1 B0.1 D2 F0.2 B0.2 F0.3 B0.3 X0 W U"),
        (made.ZERO_BUBBLE, "D0 F0.0 F0.1 I0.0 V0.0 D2 F0.2 I0.1 V0.1 F0.3 I0.2 V0.2 I0.3 V0.3 X0 W U"),
    ],
)
def test_two_passes(rule: int, expected: str) -> None:
    pipeline = made.chain((0, 1), passes=2, micro_batches=2)
    assert made.text(instructions(rule, pipeline, 0), messages=False) == expected


def test_a_stage_with_two_blocks() -> None:
    """There and back: stage 0 has the first and the last block. Worked by hand with forward 1 and backward 2."""
    pipeline = made.chain((0, 1, 0), micro_batches=3)
    assert [made.text(instructions(made.GPIPE, pipeline, stage)) for stage in range(2)] == [
        "D0 F0.0 S0.0 F0.1 S0.1 F0.2 S0.2 R1.0 F2.0 R1.1 F2.1 R1.2 F2.2 "
        "B2.0 s1.0 B2.1 s1.1 B2.2 s1.2 X2 r0.0 B0.0 r0.1 B0.1 r0.2 B0.2 X0 W U",
        "R0.0 F1.0 S1.0 R0.1 F1.1 S1.1 R0.2 F1.2 S1.2 r1.0 B1.0 s0.0 r1.1 B1.1 s0.1 r1.2 B1.2 s0.2 X1 W U",
    ]
    assert [made.text(instructions(made.ONE_F_ONE_B, pipeline, stage), messages=False) for stage in range(2)] == [
        "D0 F0.0 F0.1 F2.0 B2.0 F2.1 B2.1 B0.0 B0.1 F0.2 F2.2 B2.2 X2 B0.2 X0 W U",
        "F1.0 F1.1 B1.0 B1.1 F1.2 B1.2 X1 W U",
    ]


def test_stage_0_draws_for_others() -> None:
    """The net begins on stage 1, so stage 0 draws the second batch as soon as stage 1 wants it, before its own work.

    Stage 1 is ready for micro-batch 2 at time 6, when stage 0 runs B1.1 (5 to 7).
    """
    stages = (1, 0)
    flows = (made.make_flow(0, None, 0, stages, diff=False), made.make_flow(1, 0, 1, stages))
    pipeline = Pipeline(stages, flows, passes=2, micro_batches=2)
    assert [made.text(instructions(made.ONE_F_ONE_B, pipeline, stage)) for stage in range(2)] == [
        "D0 S0.0 S0.1 R1.0 F1.0 B1.0 s1.0 R1.1 F1.1 D2 S0.2 S0.3 B1.1 s1.1 "
        "R1.2 F1.2 B1.2 s1.2 R1.3 F1.3 B1.3 s1.3 X1 W U",
        "R0.0 F0.0 S1.0 R0.1 F0.1 S1.1 r1.0 B0.0 R0.2 F0.2 S1.2 r1.1 B0.1 R0.3 F0.3 S1.3 r1.2 B0.2 r1.3 B0.3 X0 W U",
    ]


def test_three_stages_with_data_for_the_last_and_a_skip_connection() -> None:
    stages = (0, 1, 2)
    flows = (
        made.make_flow(0, None, 2, stages, diff=False),
        made.make_flow(1, 0, 1, stages),
        made.make_flow(2, 1, 2, stages),
        made.make_flow(3, 0, 2, stages),
    )
    pipeline = Pipeline(stages, flows)
    expected = [
        [
            "D0 S0.0 F0.0 S1.0 S3.0 e3.0 T W U",
            "D1 S0.1 F0.1 S1.1 S3.1 e1.0 e3.1 T W U",
            "D2 S0.2 F0.2 S1.2 S3.2 r1.0 r3.0 B0.0 X0 e1.1 e3.2 T0 W U",
            "D3 S0.3 F0.3 S1.3 S3.3 r1.1 r3.1 B0.1 X0 e1.2 e3.3 T1 W U",
        ],
        [
            "R1.0 F1.0 S2.0 e2.0 T W U",
            "R1.1 F1.1 S2.1 r2.0 B1.0 s1.0 X1 e2.1 T0 W U",
            "R1.2 F1.2 S2.2 r2.1 B1.1 s1.1 X1 e2.2 T1 W U",
            "R1.3 F1.3 S2.3 r2.2 B1.2 s1.2 X1 e2.3 T2 W U",
        ],
        [
            "R0.0 R2.0 R3.0 F2.0 B2.0 s2.0 s3.0 X2 T0 W U",
            "R0.1 R2.1 R3.1 F2.1 B2.1 s2.1 s3.1 X2 T1 W U",
            "R0.2 R2.2 R3.2 F2.2 B2.2 s2.2 s3.2 X2 T2 W U",
            "R0.3 R2.3 R3.3 F2.3 B2.3 s2.3 s3.3 X2 T3 W U",
        ],
    ]
    assert [[made.text(delayed(pipeline, stage, number)) for number in range(4)] for stage in range(3)] == expected
    assert [made.text(stream) for stream in streams(made.DELAYED, pipeline, 4)] == [" ".join(its) for its in expected]


def test_a_run_that_goes_on_begins_anew() -> None:
    """In iteration 7 batch 6 is there if the run began at 6 or before."""
    pipeline = Pipeline((0, 0, 1), made.chain((0, 0, 1)).flows, broadcast=True, overlap=False)
    assert made.text(delayed(pipeline, 0, 7, first=6)) == "C D7 F0.7 F1.7 S0.7 r0.6 B1.6 B0.6 X1 X0 e0.7 T6 W U"
    assert made.text(delayed(pipeline, 0, 7, first=7)) == "C D7 F0.7 F1.7 S0.7 e0.7 T W U"
    assert made.text(delayed(pipeline, 1, 7, first=7)) == "C R0.7 F2.7 B2.7 s0.7 X2 T7 W U"


def test_one_stage_is_synchronous() -> None:
    assert made.text(delayed(made.chain((0,)), 0, 5)) == "D5 F0.5 B0.5 X0 T5 W U"


def test_delays_count_along_the_path() -> None:
    """Three blocks on two stages: the first one's diffs take two iterations, those of the last one none."""
    expected = [
        [
            "D0 F0.0 S0.0 R1.0 F2.0 B2.0 s1.0 X2 T W U",
            "D1 F0.1 S0.1 R1.1 F2.1 B2.1 s1.1 X2 e0.0 T W U",
            "D2 F0.2 S0.2 r0.0 B0.0 X0 R1.2 F2.2 B2.2 s1.2 X2 e0.1 T0 W U",
        ],
        [
            "R0.0 F1.0 S1.0 e1.0 T W U",
            "R0.1 F1.1 S1.1 r1.0 B1.0 s0.0 X1 e1.1 T0 W U",
            "R0.2 F1.2 S1.2 r1.1 B1.1 s0.1 X1 e1.2 T1 W U",
        ],
    ]
    assert [[made.text(delayed(made.chain((0, 1, 0)), stage, it)) for it in range(3)] for stage in range(2)] == expected


def test_delayed_batches_are_whole() -> None:
    with pytest.raises(AssertionError):
        delayed(made.chain((0, 1), micro_batches=2), 0, 0)


@settings(max_examples=60, deadline=None)
@given(made.pipelines(one_micro_batch=True))
def test_any_pipeline(pipeline: Pipeline) -> None:
    iterations = 7
    every = streams(made.DELAYED, pipeline, iterations)
    trace = simulate(every, EqualTimes())
    for stage, stream in enumerate(every):
        for segment in [number for number, its in enumerate(pipeline.stages) if its == stage]:
            # A batch comes back an iteration later for each change of stages that is behind it on its way.
            behind = pipeline.stages[segment:]
            delay = sum(a != b for a, b in pairwise(behind))
            back = max(iterations - delay, 0)
            forward = [its.micro for its in stream if isinstance(its, Forward) and its.segment == segment]
            backward = [its.micro for its in stream if isinstance(its, Backward) and its.segment == segment]
            assert (forward, backward) == (list(range(iterations)), list(range(back)))
            assert trace.peaks[segment] == min(delay + 1, iterations)
            for batch in range(back):
                between = stream[stream.index(Forward(segment, batch)) : stream.index(Backward(segment, batch))]
                assert sum(isinstance(its, UpdateWeights) for its in between) == delay
    # What is not received are diffs that a longer run would receive.
    sent = {str(its) for stream in every for its in stream if isinstance(its, Send)}
    got = {str(Send(its.transfer, its.micro, its.diff)) for stream in every for its in stream if isinstance(its, Recv)}
    assert sorted(sent - got) == sorted(trace.left)
    assert all(message.startswith("s") for message in trace.left)
