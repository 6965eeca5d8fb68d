"""One training iteration, instruction by instruction, on an operator and an exchange that only take notes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bpt.engine.executor import Executor, PassExecutor
from bpt.engine.late_loss import Loss
from bpt.engine.scheduler import Scheduler
from bpt.engine.status import Status
from bpt.system.comm.comm_thread import CommThread
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.events.bus import EventBus
from bpt.system.events.totals import Totals, phase_seconds


class Notes:
    """An operator with two segments, and an exchange; passes lose 1, 2, 3, …, all of it in the second segment."""

    def __init__(self, broadcasts: bool = False) -> None:
        self.done: list[str] = []
        self.segments = ("first", "second")
        self.stage = self.delay = None
        self.device = torch.device("cpu")
        self.broadcasts = broadcasts
        self.events = EventBus()
        self.totals = self.events.add(Totals())
        self.now = ""
        self.passes = 0
        self.grad = True

    def begin(self, iteration: int, micro_batches: int, number: int = 0, loss_scale: float = 1.0) -> None:
        """Of pipelines."""

    can_join = False

    @property
    def batches(self) -> Notes:
        return self

    def handlers(self) -> dict[type, Any]:
        return {}

    def schedule(self, scheduler: Scheduler) -> Scheduler:
        """An exchange that adds no instructions."""
        return scheduler

    def forget(self) -> None:
        """Of pipelines."""

    def finish(self) -> None:
        """Of pipelines."""

    def begin_pass(self, iteration: int, number: int, loss_scale: float) -> None:
        self.now = f"{iteration}.{number}"

    def forward(self, segment: int, micro: int | None = None, grad: bool = True) -> None:
        assert (micro, grad) == (None, self.grad)
        self._note(f"forward {segment} in pass {self.now}")

    def backward(self, segment: int, micro: int | None = None, update: object = None) -> None:
        assert micro is None and update is None
        self._note(f"backward {segment}")

    def layers_of(self, segment: int) -> str:
        return self.segments[segment]

    def losses(self, segment: int, micro: int | None = None) -> torch.Tensor:
        self.passes += segment
        return torch.tensor(float(self.passes * segment))

    @property
    def micro_batches(self) -> int:
        return 1

    def start(self, segment: int) -> None:
        self._note(f"start {segment}")

    def wait(self) -> None:
        self._note("wait")

    def broadcast(self) -> None:
        self._note("broadcast")

    def updated(self) -> None:
        """Of exchanges that divide the update."""

    def take_early(self, update: object) -> None:
        assert update is None

    def _note(self, what: str) -> None:
        self.done.append(f"{self.events.what or ''}: {what}")


def executor_of(notes: Any, passes: int = 1) -> Executor:
    world = SerialCommunicator()
    return Executor(notes, notes, Status(world, CommThread(world), None), notes.events, passes)


@pytest.mark.parametrize("broadcasts", [False, True])
def test_what_is_done_in_which_order(broadcasts: bool) -> None:
    notes = Notes(broadcasts)
    updates: list[Loss] = []

    def update(loss: Loss) -> None:
        updates.append(loss)
        notes._note("update")

    executor = executor_of(notes, passes=2)
    assert executor.train(7, update) == 1.5  # the mean of 1 and 2
    assert updates == [1.5]
    assert notes.done == ["C: broadcast"] * broadcasts + [
        "F0: forward 0 in pass 7.0", "F1: forward 1 in pass 7.0", "B1: backward 1", "B0: backward 0",
        "F0: forward 0 in pass 7.1", "F1: forward 1 in pass 7.1", "B1: backward 1", "X1: start 1", "B0: backward 0",
        "X0: start 0", "W: wait", "U: update",
    ]  # fmt: skip
    assert executor.train(8, update) == 3.5  # nothing is left of the iteration before
    assert notes.now == "8.1"
    assert executor.applied() == [(8, 8, None, 0)]
    seconds = phase_seconds(notes.totals.take())
    assert all(seconds[phase] > 0 for phase in ("forward", "backward", "exchange", "update"))
    assert (seconds["broadcast"] > 0) == broadcasts


def test_batches_are_counted_on_where_iterations_are_renumbered() -> None:
    """A worker of the outer layer trains some of the solver's iterations."""
    executor = executor_of(Notes(False))
    applied = []
    for renumbered, iteration in ((None, 4), (7, 7), (7, 7), (None, 8), (None, 3)):
        if renumbered is not None:
            executor.renumber(renumbered)
        executor.train(iteration, lambda loss: None)
        applied += executor.applied()
    assert [each[:3] for each in applied] == [(4, 4, None), (5, 7, None), (6, 7, None), (7, 8, None), (3, 3, None)]
    executor.forget()
    executor.renumber(9)  # of nothing that is under way
    executor.train(9, lambda loss: None)
    assert executor.applied() == [(9, 9, None, 0)]


@pytest.mark.parametrize("broadcasts", [False, True])
def test_a_pass_to_look_at_is_by_the_weights_as_they_are_now(broadcasts: bool) -> None:
    notes = Notes(broadcasts)
    notes.grad = False
    assert executor_of(notes).evaluate(4, 3) == 1.0
    assert notes.done == ["C: broadcast"] * broadcasts + ["F0: forward 0 in pass 4.3", "F1: forward 1 in pass 4.3"]


def test_passes_by_themselves() -> None:
    notes: Any = Notes()
    executor = PassExecutor(notes)
    assert executor.evaluate(0, 0, grad=True) == 1.0
    executor.backward()
    assert [what.partition(": ")[2] for what in notes.done] == [
        "forward 0 in pass 0.0", "forward 1 in pass 0.0", "backward 1", "backward 0",
    ]  # fmt: skip
