"""Schedules that stand still, and what the error says."""

from __future__ import annotations

import pytest

from bpt.schedule.instructions import Forward, Instruction, Recv, Send
from bpt.schedule.pipeline import streams
from bpt.schedule.pipeline.simulation import DeadlockError, EqualTimes, simulate
from tests.schedule.pipeline.made import GPIPE, SEQUENTIAL, chain


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
