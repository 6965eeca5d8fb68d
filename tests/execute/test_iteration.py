"""One training iteration, instruction by instruction, on an operator and an exchange that only take notes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bpt.comm.comm_thread import CommThread
from bpt.comm.serial import SerialCommunicator
from bpt.context import RunContext
from bpt.events.bus import EventBus
from bpt.events.totals import Totals, phase_seconds
from bpt.execute.iteration import Iteration, backward_pass, forward_pass
from bpt.execute.status import Status


class Notes:
    """An operator with two segments, and an exchange; losses are 1, 2, 3, …"""

    def __init__(self, broadcasts: bool = False) -> None:
        self.done: list[str] = []
        self.segments = ("first", "second")
        self.broadcasts = broadcasts
        self.events = EventBus()
        self.totals = self.events.add(Totals())
        self.context = RunContext()
        self.passes = 0

    def forward(self, segment: int, grad: bool = True) -> None:
        assert grad
        self._note(f"forward {segment} in pass {self.context.micro}")

    def backward(self, segment: int) -> None:
        self._note(f"backward {segment}")

    def loss(self) -> torch.Tensor:
        self.passes += 1
        return torch.tensor(float(self.passes))

    def start(self, segment: int) -> None:
        self._note(f"start {segment}")

    def wait(self) -> None:
        self._note("wait")

    def broadcast(self) -> None:
        self._note("broadcast")

    def _note(self, what: str) -> None:
        self.done.append(f"{self.events.what or ''}: {what}")


def iteration_of(notes: Any) -> Iteration:
    world = SerialCommunicator()
    status = Status(world, CommThread(world), None)
    return Iteration(notes, notes, status, notes.context, notes.events)


@pytest.mark.parametrize("broadcasts", [False, True])
def test_what_is_done_in_which_order(broadcasts: bool) -> None:
    notes = Notes(broadcasts)
    updates: list[float] = []

    def update(loss: float) -> None:
        updates.append(loss)
        notes._note("update")

    made = iteration_of(notes)
    assert made.run(2, update, debug=False) == 1.5  # the mean of 1 and 2
    assert updates == [1.5]
    assert notes.done == ["C: broadcast"] * broadcasts + [
        "F0: forward 0 in pass 0", "F1: forward 1 in pass 0", "B1: backward 1", "B0: backward 0",
        "F0: forward 0 in pass 1", "F1: forward 1 in pass 1", "B1: backward 1", "X1: start 1", "B0: backward 0",
        "X0: start 0", "W: wait", "U: update",
    ]  # fmt: skip
    assert made.run(1, update, debug=False) == 3.0
    assert notes.context.micro == 0
    seconds = phase_seconds(notes.totals.take())
    assert all(seconds[phase] > 0 for phase in ("forward", "backward", "exchange", "update"))
    assert (seconds["broadcast"] > 0) == broadcasts


@pytest.mark.parametrize("broadcasts", [False, True])
def test_a_look_is_at_the_weights_as_they_are_now(broadcasts: bool) -> None:
    class Looking(Notes):
        def forward(self, segment: int, grad: bool = True) -> None:
            assert not grad
            self._note(f"forward {segment}")

    notes = Looking(broadcasts)
    assert iteration_of(notes).look(debug=False) == 1.0
    assert notes.done == [": broadcast"] * broadcasts + [": forward 0", ": forward 1"]


def test_passes_by_themselves() -> None:
    notes: Any = Notes()
    assert forward_pass(notes, grad=True) == 1.0
    backward_pass(notes)
    assert notes.done == [
        ": forward 0 in pass 0", ": forward 1 in pass 0", ": backward 1", ": backward 0",
    ]  # fmt: skip
