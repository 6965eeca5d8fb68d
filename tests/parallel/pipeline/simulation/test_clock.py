"""Pipelines on the virtual clock, and schedules that stand still."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bpt.engine.instructions import (
    Backward,
    ExchangeGradients,
    Forward,
    Instruction,
    LoadBatch,
    Recv,
    Send,
    UpdateWeights,
    Wait,
)
from bpt.parallel.pipeline import streams
from bpt.parallel.pipeline.simulation import DeadlockError, EqualTimes, StageEvent, simulate
from tests.parallel.pipeline.made import DELAYED, GPIPE, ONE_F_ONE_B, SEQUENTIAL, chain


def shown(events: Iterable[StageEvent]) -> list[tuple[int, str, str, float, float]]:
    """Stage, stream, instruction as it prints, start and end of each."""
    return sorted((event.stage, event.stream, event.label, event.start, event.end) for event in events)


def test_gpipe_on_two_stages() -> None:
    times = EqualTimes(forwards=1, backwards=2, transfers=0.5, exchanges=3, updates=0.25)
    trace = simulate(streams(GPIPE, chain((0, 1), micro_batches=2)), times)
    assert shown(trace.events) == sorted(
        [
            (0, "compute", "F0.0", 0, 1),
            (0, "to 1", "S0.0", 1, 1.5),
            (0, "compute", "F0.1", 1, 2),
            (0, "to 1", "S0.1", 2, 2.5),
            (1, "compute", "F1.0", 1.5, 2.5),
            (1, "compute", "F1.1", 2.5, 3.5),
            (1, "compute", "B1.0", 3.5, 5.5),
            (1, "to 0", "s0.0", 5.5, 6),
            (1, "compute", "B1.1", 5.5, 7.5),
            (1, "to 0", "s0.1", 7.5, 8),
            (1, "exchange", "X1", 7.5, 10.5),
            (1, "compute", "U", 10.5, 10.75),
            (0, "compute", "B0.0", 6, 8),
            (0, "compute", "B0.1", 8, 10),
            (0, "exchange", "X0", 10, 13),
            (0, "compute", "U", 13, 13.25),
        ]
    )
    assert [event.start for event in trace.events] == sorted(event.start for event in trace.events)
    assert trace.ends == (13.25, 10.75)
    assert trace.busy == (6.25, 6.25)
    assert trace.waiting == (7.0, 4.5)  # for the first diff and the exchange; for the first values and the exchange
    assert trace.peaks == {0: 2, 1: 2}
    assert (trace.time, trace.steps, trace.left) == (13.25, (13.25,), ())
    assert trace.bubbles == (1 - 6.25 / 13.25, 1 - 6.25 / 13.25)
    assert trace.bubble == pytest.approx(7 / 13.25)


def test_links() -> None:
    """Messages to stage 1 queue up; the one to stage 2 has a link of its own; none holds stage 0 up."""
    every: list[list[Instruction]] = [
        [LoadBatch(0), Forward(0, 0), Send(0, 0), Send(1, 0), Send(2, 0), Forward(1, 0)],
        [Recv(1, 0), Recv(0, 0), Send(3, 0)],
        [Recv(2, 0), Recv(3, 0)],
    ]
    trace = simulate(every, EqualTimes(transfers=4))
    assert {event.label: (event.stream, event.start, event.end) for event in trace.events} == {
        "F0.0": ("compute", 0, 1),
        "F1.0": ("compute", 1, 2),
        "S0.0": ("to 1", 1, 5),
        "S1.0": ("to 1", 5, 9),
        "S2.0": ("to 2", 1, 5),
        "S3.0": ("to 2", 9, 13),
    }
    assert trace.ends == (2, 9, 13)
    assert trace.waiting == (0, 9, 13)


def test_exchanges_go_on_beside_backward_one_after_the_other() -> None:
    stream: list[Instruction] = [
        Backward(1, 0),
        ExchangeGradients(1),
        Backward(0, 0),
        ExchangeGradients(0),
        Wait(),
        UpdateWeights(),
    ]
    trace = simulate([stream], EqualTimes(backwards=2, exchanges=5, updates=1))
    assert [(event.label, event.start, event.end) for event in trace.events] == [
        ("B1.0", 0, 2),
        ("X1", 2, 7),
        ("B0.0", 2, 4),
        ("X0", 7, 12),
        ("U", 12, 13),
    ]


def test_times_are_asked_for_by_stage_segment_and_flow() -> None:
    class Times(EqualTimes):
        def forward(self, stage: int, segment: int) -> float:
            return {(0, 0): 1, (1, 1): 8}[stage, segment]

        def backward(self, stage: int, segment: int) -> float:
            return {(0, 0): 2, (1, 1): 16}[stage, segment]

        def transfer(self, flow: int, diff: bool) -> float:
            return {(0, False): 4, (0, True): 32}[flow, diff]

    assert simulate(streams(SEQUENTIAL, chain((0, 1))), Times()).time == 1 + 2 + 4 + 8 + 16 + 32


def test_a_message_that_is_late_holds_up_no_other() -> None:
    """Two micro-batches over a link that each keeps busy for 4, and are there 8 later: at 13 and 17. Of both the diffs
    leave at 18."""
    times = EqualTimes(forwards=1, backwards=0, transfers=4, latencies=8)
    assert simulate(streams(GPIPE, chain((0, 1), micro_batches=2)), times).time == 18 + 4 + 4 + 8


@pytest.mark.parametrize("rule", [GPIPE, ONE_F_ONE_B])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("micros", [1, 2, 5, 8])
def test_bubble(rule: int, stages: int, micros: int) -> None:
    """K equal stages, M micro-batches: (K-1) / (M+K-1) (Huang et al. 2019, section 2.3); 1F1B has the same."""
    trace = simulate(streams(rule, chain(range(stages), micro_batches=micros)), EqualTimes(forwards=1, backwards=2))
    assert trace.bubble == pytest.approx((stages - 1) / (micros + stages - 1))
    assert trace.time == 3 * (micros + stages - 1)


def test_bubble_of_a_sequence() -> None:
    trace = simulate(streams(SEQUENTIAL, chain(range(4), micro_batches=3)), EqualTimes())
    assert (trace.time, trace.bubble) == (3 * 4 * 3, 0.75)


def test_delayed_gradients_fill_the_pipeline() -> None:
    """Once full, an iteration takes what one stage takes; the last two diffs under way are never received."""
    trace = simulate(streams(DELAYED, chain(range(3)), iterations=6), EqualTimes())
    assert [later - sooner for sooner, later in zip(trace.steps, trace.steps[1:], strict=False)] == [3.0] * 5
    assert trace.left == ("s0.4", "s1.5")
    assert trace.peaks == {0: 3, 1: 2, 2: 1}


def test_an_update_without_gradients_takes_no_time() -> None:
    trace = simulate(streams(DELAYED, chain((0, 1)), iterations=2), EqualTimes(updates=0.5))
    updates = [(event.stage, event.start, event.end) for event in trace.events if event.label == "U"]
    # Stage 0: F0.0 to 1, F0.1 to 2, r0.0 at 4, B0.0 to 6. Stage 1: F1.0 to 2, B1.0 to 4, U to 4.5, F1.1, B1.1 to 7.5.
    assert updates == [(1, 4.0, 4.5), (0, 6.0, 6.5), (1, 7.5, 8.0)]
    assert trace.steps == (4.5, 8.0)


def test_nothing_to_do() -> None:
    trace = simulate([[], []], EqualTimes())
    assert (trace.time, trace.bubble, trace.bubbles, trace.peak(range(1))) == (0, 0, (0, 0), 0)


def deadlock(every: list[list[Instruction]]) -> str:
    with pytest.raises(DeadlockError) as error:
        simulate(every, EqualTimes())
    return str(error.value)


def test_messages_that_are_received_out_of_order() -> None:
    """Stage 1 asks for micro-batch 1 first, and would get micro-batch 0."""
    every = streams(GPIPE, chain((0, 1), micro_batches=2))
    stream = every[1]
    first, second = stream.index(Recv(0, 0)), stream.index(Recv(0, 1))
    stream[first], stream[second] = stream[second], stream[first]
    assert deadlock(every) == (
        "deadlock: stage 0 waits at r0.0 (instruction 5) for the diff of flow 0, micro-batch 0, "
        "which stage 1 sends later (instruction 5); "
        "stage 1 waits at R0.1 (instruction 0) for the values of flow 0, micro-batch 1, "
        "but S0.0 was sent before it and is not received yet"
    )


def test_a_message_that_is_never_received() -> None:
    every = streams(SEQUENTIAL, chain((0, 1), micro_batches=2))
    every[1].remove(Recv(0, 0))
    assert "stage 1 waits at R0.1 (instruction 3)" in deadlock(every)
    assert "but S0.0 was sent before it" in deadlock(every)


def test_a_message_that_is_never_sent() -> None:
    every = streams(SEQUENTIAL, chain((0, 1)))
    every[1].remove(Send(0, 0, diff=True))
    assert deadlock(every) == (
        "deadlock: stage 0 waits at r0.0 (instruction 3) for the diff of flow 0, micro-batch 0, "
        "which no stage is going to send; stage 1 has done all of its 6 instructions"
    )


def test_a_circle() -> None:
    every: list[list[Instruction]] = [
        [Forward(0, 0), Recv(2, 0), Send(0, 0)],
        [Recv(0, 0), Send(1, 0)],
        [Recv(1, 0), Send(2, 0)],
    ]
    text = deadlock(every)
    assert text.split("; ")[0].endswith(
        "for the values of flow 2, micro-batch 0, which stage 2 sends later (instruction 1)"
    )
    assert text.count("sends later") == 3


def test_ends_of_a_flow() -> None:
    with pytest.raises(AssertionError, match="same end"):
        simulate([[Send(0, 0)], [Send(0, 1)], [Recv(0, 0), Recv(0, 1)]], EqualTimes())
    with pytest.raises(AssertionError, match="to itself"):
        simulate([[Send(0, 0), Recv(0, 0)]], EqualTimes())
