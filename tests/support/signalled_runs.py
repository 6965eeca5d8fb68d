"""Solvers to which ranks signal at given iterations."""

from __future__ import annotations

from collections.abc import Callable

from bpt.base.signals import SignalAction, SignalActions
from bpt.train.solver import milestones
from bpt.train.solver.solver import Solver


class Scripted(SignalActions):
    """Has a signal ready when it is asked for the given time, from 0. It is asked once an iteration or test batch."""

    def __init__(self, at: int, action: SignalAction, term: bool = False) -> None:
        super().__init__()
        self._at = at
        self._action = action
        self._term = term
        self._asked = 0

    def take(self) -> SignalAction:
        self._asked += 1
        if self._asked != self._at + 1:
            return SignalAction.NONE
        self.terminated |= self._term
        return self._action


def on(rank: int, at: int, action: SignalAction, term: bool = False) -> Callable[[int], SignalActions]:
    """Signals of all ranks, of which one gets one."""
    return lambda other: Scripted(at if other == rank else -1, action, term)


class Noted:
    """The solvers of all ranks, and after which iteration each has written snapshots."""

    def __init__(self) -> None:
        self.solvers: list[Solver] = []
        self.snapshots: dict[int, list[int]] = {}

    def __call__(self, solver: Solver) -> None:
        self.solvers.append(solver)
        written = self.snapshots.setdefault(solver.runtime.parallel.grid.world.rank, [])

        def note(milestone: milestones.Milestone) -> None:
            if isinstance(milestone, milestones.Saved):
                written.append(milestone.iteration)

        solver.listeners.append(note)


UNTESTED = "test_interval: 100 test_initialization: false"
