"""Totals: times and bytes by instruction and method, and phases made of them."""

from __future__ import annotations

from bpt.engine.instructions import (  # fmt: skip
    Backward,
    Broadcast,
    ExchangeGradients,
    Forward,
    Instruction,
    InstructionStep,
    LoadBatch,
    Recv,
    Send,
    UpdateWeights,
    Wait,
)
from bpt.system.events.event import Activity, Event
from bpt.system.events.totals import PHASES, Key, Totals, Traffic, busy_seconds, phase_seconds, traffic_of
from tests.support.doubles.seen import key_of


def test_sums_by_instruction_message_and_method() -> None:
    """Micro-batches of one segment are one; ``take`` begins anew."""
    totals = Totals()
    totals(Event(None, 0.0, 0.5, method="Bcast", calls=1, sent=10, received=20))
    totals(Event(ExchangeGradients(0), 1.0, 1.25, method="Bcast", message="a", calls=1, sent=1, received=2))
    totals(Event(ExchangeGradients(0), 2.0, 2.25, method="Bcast", message="a", calls=0, sent=3, received=4))
    totals(Event(ExchangeGradients(0), 2.0, 2.5, method="Bcast", message="b", calls=1, sent=5))
    totals(Event(Forward(1, 0), 3.0, 4.0))
    totals(Event(Forward(1, 7), 4.0, 6.0))
    totals(Event(Activity.TEST, 6.0, 9.0))
    taken = totals.take()
    assert taken == {
        Key(None, "", "Bcast"): Traffic(1, 10, 20, 0.5),
        Key(InstructionStep(ExchangeGradients, 0), "a", "Bcast"): Traffic(1, 4, 6, 0.5),
        Key(InstructionStep(ExchangeGradients, 0), "b", "Bcast"): Traffic(1, 5, 0, 0.5),
        Key(InstructionStep(Forward, 1)): Traffic(0, 0, 0, 3.0),
        Key(Activity.TEST): Traffic(0, 0, 0, 3.0),
    }
    assert [key.message for key in traffic_of(taken)] == ["", "a", "b"]
    assert totals.take() == {}


def test_phases_add_up_their_instructions() -> None:
    """What lies outside of instructions is in no phase, nor are calls, which are within instructions."""
    totals = Totals()
    # Broadcast 1, forward 2 + 4 + 8, backward 16 + 32, exchange 64 + 128 and waiting 256, update 512, pipeline 1024 + …
    instructions: list[Instruction] = [
        Broadcast(), LoadBatch(0), Forward(0), Forward(1), Backward(1), Backward(0),
        ExchangeGradients(1), ExchangeGradients(0), Wait(),
        UpdateWeights(), Send(0, 0), Recv(0, 0, diff=True),
    ]  # fmt: skip
    for number, instruction in enumerate(instructions):
        totals(Event(instruction, 1000.0, 1000.0 + 2**number))
        totals(Event(instruction, 1000.0, 1001.0, method="Send", calls=1))
    totals(Event(Activity.TEST, 0.0, 7.0))
    totals(Event(None, 0.0, 7.0, method="Barrier", calls=1))
    assert phase_seconds(totals.take()) == {
        "broadcast": 1, "forward": 14, "backward": 48, "pipeline": 3072, "exchange": 448, "update": 512,
    }  # fmt: skip
    assert phase_seconds({}) == dict.fromkeys(PHASES, 0)


def test_computing_is_without_waiting() -> None:
    phases = {"broadcast": 100.0, "forward": 6.0, "backward": 24.0, "exchange": 50.0, "update": 3.0}
    waiting = {
        ("F1", "Allgatherv"): 1.0, ("B0", "Reduce_scatter"): 2.5, ("U", "Allreduce"): 0.5,
        # Not in these phases, or in the comm_thread's own time.
        ("X1 a … b", "Allreduce"): 1e3, ("C a", "Bcast"): 1e3, ("W", "Allreduce"): 1e3, ("", "Barrier"): 1e3,
    }  # fmt: skip
    traffic = {key_of(*key): Traffic(1, 0, 0, seconds) for key, seconds in waiting.items()}
    assert busy_seconds(phases, traffic) == 6 + 24 + 3 - (1 + 2.5 + 0.5)
    assert busy_seconds(phases, {}) == 33
