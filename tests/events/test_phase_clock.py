"""Seconds by phase, of a clock that is set by hand."""

from __future__ import annotations

import pytest

from bpt.comm.counters import Traffic
from bpt.events import phase_clock as module
from bpt.events.phase_clock import PHASES, Clock, computing
from bpt.schedule.instructions import Backward, Broadcast, Exchange, Forward, Update, Wait


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock shows its elements, one after the other."""
    shown: list[float] = []
    monkeypatch.setattr(module.time, "perf_counter", lambda: shown.pop(0))
    return shown


def test_phases_add_up_their_instructions(times: list[float]) -> None:
    clock = Clock()
    # Broadcast 1, forward 2 + 4, backward 8 + 16, exchange 32 + 64 and waiting 128, update 256.
    instructions = [
        Broadcast(), Forward(0), Forward(1), Backward(1), Backward(0), Exchange(1), Exchange(0), Wait(), Update(),
    ]  # fmt: skip
    for number, instruction in enumerate(instructions):
        times += [1000.0 * number, 1000.0 * number + 2**number]
        with clock.during(instruction):
            pass
    taken = {"broadcast": 1, "forward": 6, "backward": 24, "pipeline": 0, "exchange": 224, "update": 256}
    assert clock.take() == taken
    assert clock.take() == dict.fromkeys(PHASES.values(), 0)


def test_what_fails_took_its_time(times: list[float]) -> None:
    clock = Clock()
    times += [1.0, 3.5]
    with pytest.raises(KeyError), clock.during(Forward(0)):
        raise KeyError
    assert clock.take()["forward"] == 2.5


def test_computing_is_without_waiting() -> None:
    phases = {"broadcast": 100.0, "forward": 6.0, "backward": 24.0, "exchange": 50.0, "update": 3.0}
    traffic = {
        ("F1", "Allgatherv"): Traffic(1, 0, 0, 1.0),
        ("B0", "Reduce_scatter"): Traffic(1, 0, 0, 2.5),
        ("U", "Allreduce"): Traffic(1, 0, 0, 0.5),
        # Not in these phases, or in the comm_thread's own time.
        ("X1 a … b", "Allreduce"): Traffic(1, 0, 0, 1000.0),
        ("C a", "Bcast"): Traffic(1, 0, 0, 1000.0),
        ("W", "Allreduce"): Traffic(1, 0, 0, 1000.0),
        ("", "Barrier"): Traffic(1, 0, 0, 1000.0),
    }
    assert computing(phases, traffic) == 6 + 24 + 3 - (1 + 2.5 + 0.5)
    assert computing(phases, {}) == 33
