"""What SIGINT (Ctrl-C) and SIGHUP do to a run: snapshot, stop or nothing (Caffe: SignalHandler)."""

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

    Args:
        sigint, sighup: the effect of each signal. ``NONE`` ignores it.
    """

    def __init__(self, sigint: Action = Action.STOP, sighup: Action = Action.SNAPSHOT) -> None:
        self._effects = {signal.SIGINT: sigint}
        if hasattr(signal, "SIGHUP"):  # not on Windows
            self._effects[signal.SIGHUP] = sighup
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
        self._pending.append(signal.Signals(number))

    def take(self) -> Action:
        """The action asked for since the last call, one signal at a time; NONE if there was none."""
        return self._effects[self._pending.pop(0)] if self._pending else Action.NONE
