"""What signals do to a run: snapshot, stop or nothing (Caffe: SignalHandler)."""

from __future__ import annotations

import signal
from enum import Enum
from types import FrameType, TracebackType
from typing import Any


class Action(Enum):
    """What a signal asks of the solver."""

    NONE = "none"
    STOP = "stop"
    SNAPSHOT = "snapshot"


class SignalActions:
    """While active, notes signals; the solver asks for the action at the end of an iteration.

    SIGTERM, by which clusters tell a job to end, always stops: Caffe dies of it, and the work since the last
    snapshot with it. So does SIGUSR1, by which ``bpt join`` tells a job to make way for another, which all launchers
    pass on, and which clusters can send some time before they end a job.

    Args:
        sigint: the effect of SIGINT (Ctrl-C). ``NONE`` ignores it.
        sighup: the effect of SIGHUP.
    """

    def __init__(self, sigint: Action = Action.STOP, sighup: Action = Action.SNAPSHOT) -> None:
        self.terminated = False  # whether a stop was asked for by SIGTERM
        self._effects = {signal.SIGINT: sigint, signal.SIGTERM: Action.STOP}
        if hasattr(signal, "SIGHUP"):  # not on Windows
            self._effects |= {signal.SIGHUP: sighup, signal.SIGUSR1: Action.STOP}
        self._pending: list[signal.Signals] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalActions:
        for number in self._effects:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number not in self._pending:  # impatience does not ask for more
            self._pending.append(signal.Signals(number))

    def take(self) -> Action:
        """The action asked for since the last call, one signal at a time; NONE if there was none."""
        if not self._pending:
            return Action.NONE
        action = self._effects[number := self._pending.pop(0)]
        # Ctrl-C may come first of those that are pending, and nothing comes after a stop.
        self.terminated |= number == signal.SIGTERM or (action is Action.STOP and signal.SIGTERM in self._pending)
        return action
