"""The effects of signals on a run: snapshot, stop or nothing (Caffe: SignalHandler)."""

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
"""The signal that asks a run to write a snapshot and to stop, whatever the flags say about other signals."""


class SignalAction(Enum):
    """The action of the solver that a signal asks for."""

    NONE = "none"
    STOP = "stop"
    SNAPSHOT = "snapshot"


class SignalActions:
    """Records signals while it is active; the solver takes the action at the end of an iteration.

    SIGTERM, by which clusters end a job, always stops the run in good order; it kills Caffe, which loses all work since
    the last snapshot. SIGUSR1 stops the run, too: ``bpt stop`` and ``bpt join`` send it, all launchers pass it on, and
    clusters can send it some time before they end a job.

    Args:
        sigint: the effect of SIGINT (Ctrl-C). ``NONE`` ignores it.
        sighup: the effect of SIGHUP.

    Attributes:
        terminated: whether SIGTERM asked for a stop.
        stopping: whether the run stops, and only files remain to be written.
        longest: the longest time in seconds between two calls of ``take``.
    """

    def __init__(self, sigint: SignalAction = SignalAction.STOP, sighup: SignalAction = SignalAction.SNAPSHOT) -> None:
        self.terminated = False
        self.stopping = False
        self.longest = 0.0
        self._taken = 0.0  # time of the last call of ``take``
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
        if number not in self._pending:  # repeated signals count once
            self._pending.append(signal.Signals(number))

    @contextmanager
    def before_training(self) -> Iterator[None]:
        """Let SIGTERM and SIGUSR1 end the run in good order while it is built, when nothing must be saved yet.

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
        if not self._begun:  # after training the signal has no effect
            raise RunError(f"stopped by {signal.Signals(number).name} before the first iteration: nothing is lost")

    def take(self) -> SignalAction:
        """Return the action of the next pending signal; NONE if no signal is pending."""
        now = time.monotonic()
        self.longest, self._taken = max(self.longest, now - self._taken), now
        if not self._pending:
            return SignalAction.NONE
        action = self._effects[number := self._pending.pop(0)]
        # A pending Ctrl-C may come before SIGTERM, and no signal is taken after a stop.
        self.terminated |= number == signal.SIGTERM or (action is SignalAction.STOP and signal.SIGTERM in self._pending)
        return action
