"""What signals do to a run: snapshot, stop or nothing (Caffe: SignalHandler)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import FrameType, TracebackType
from typing import Any

from bpt.base.errors import RunError

STOP_SIGNAL = getattr(signal, "SIGUSR1", signal.SIGTERM)
"""Asks a run to write a snapshot and to stop, whatever flags say of the other signals."""


class SignalAction(Enum):
    """What a signal asks of the solver."""

    NONE = "none"
    STOP = "stop"
    SNAPSHOT = "snapshot"


class SignalActions:
    """While active, notes signals; the solver asks for the action at the end of an iteration.

    SIGTERM, by which clusters tell a job to end, always stops: Caffe dies of it, and the work since the last
    snapshot with it. So does SIGUSR1, by which ``bpt stop`` and ``bpt join`` stop a run, which all launchers
    pass on, and which clusters can send some time before they end a job.

    Args:
        sigint: the effect of SIGINT (Ctrl-C). ``NONE`` ignores it.
        sighup: the effect of SIGHUP.

    Attributes:
        terminated: whether a stop was asked for by SIGTERM.
        stopping: whether the run is known to stop: what is left is to write what is due.
        longest: the most seconds from one call of ``take`` to the next.
    """

    def __init__(self, sigint: SignalAction = SignalAction.STOP, sighup: SignalAction = SignalAction.SNAPSHOT) -> None:
        self.terminated = False
        self.stopping = False
        self.longest = 0.0
        self._taken = 0.0  # when ``take`` was called last
        self._begun = False
        self._effects = {signal.SIGINT: sigint, signal.SIGTERM: SignalAction.STOP}
        if hasattr(signal, "SIGHUP"):  # not on Windows
            self._effects |= {signal.SIGHUP: sighup, signal.SIGUSR1: SignalAction.STOP}
        self._pending: list[signal.Signals] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalActions:
        self._begun = True
        self._taken = time.monotonic()
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

    @contextmanager
    def before_training(self) -> Iterator[None]:
        """While the run is built, let SIGTERM and SIGUSR1 end it in good order: nothing is to be saved yet.

        Raises:
            RunError: such a signal came.
        """
        before = {number: signal.signal(number, self._end) for number in (signal.SIGTERM, STOP_SIGNAL)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if not self._begun:  # after training it comes too late
            raise RunError(f"stopped by {signal.Signals(number).name} before the first iteration: nothing is lost")

    def take(self) -> SignalAction:
        """Return the action asked for since the last call, one signal at a time; NONE if there was none."""
        now = time.monotonic()
        self.longest, self._taken = max(self.longest, now - self._taken), now
        if not self._pending:
            return SignalAction.NONE
        action = self._effects[number := self._pending.pop(0)]
        # Ctrl-C may come first of those that are pending, and nothing comes after a stop.
        self.terminated |= number == signal.SIGTERM or (action is SignalAction.STOP and signal.SIGTERM in self._pending)
        return action
