"""Status: what all ranks must know of an iteration before they continue: its loss, and what signals ask for."""

from __future__ import annotations

import numpy as np

from bpt.base.signals import SignalAction, SignalActions
from bpt.engine.instructions import Wait
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread

_ACTIONS = (SignalAction.SNAPSHOT, SignalAction.STOP)  # a later one overrides an earlier one


class Status:
    """Sums losses, and lets all ranks obey a signal to any of them after the same iteration.

    Args:
        world: all ranks of the run.
        comm_thread: where the sum travels during the backward pass.
        signals: this rank's; ``None``: there are none.
    """

    def __init__(self, world: Communicator, comm_thread: CommThread, signals: SignalActions | None) -> None:
        self._world = world
        self._mine = world.Dup()
        self._comm_thread = comm_thread
        self._signals = signals
        self._sums = np.zeros(3 + len(_ACTIONS))  # loss, overflow, termination, one for each action
        self.overflow = False  # whether this rank had gradients that are not finite, which all ranks must know
        self.pending = SignalAction.NONE  # what this rank was asked to do, while the others may not know
        self.terminated = False  # whether a stop was asked for by SIGTERM, on any rank

    def start(self, loss: float) -> None:
        """Start to sum over the ranks; ``loss`` and ``action`` are known when the communication thread has waited."""
        self._fill(loss, self._pop_signal() if self._world.size > 1 else SignalAction.NONE)
        self._comm_thread.submit(lambda: self._mine.Allreduce(self._sums), Wait())

    def forget(self) -> None:
        """Drop all sums that are under way, because the run continues from elsewhere; a collective call."""

    def close(self, failed: bool = False) -> None:
        """End all communication; a collective call, unless something ``failed``."""
        if not failed:
            self._comm_thread.wait()
            self._mine.Free()

    @property
    def loss(self) -> float:
        """The loss of all ranks together."""
        return float(self._sums[0])

    @property
    def overflown(self) -> bool:
        """Whether any rank has reported an ``overflow``."""
        return bool(self._sums[1])

    @property
    def action(self) -> SignalAction:
        """The action that the solver must take after this iteration.

        Among many ranks a signal that comes during the update takes effect an iteration later. A rank that is alone
        obeys it at once, as Caffe does.
        """
        return self.agree() if self._world.size == 1 else self._asked()

    def agree(self) -> SignalAction:
        """Return what all ranks must do now; a collective call."""
        self._fill(0.0, self._pop_signal())
        self._world.Allreduce(self._sums)
        return self._asked()

    def _asked(self) -> SignalAction:
        self.pending = SignalAction.NONE
        self.terminated |= bool(self._sums[2])
        asked = [action for action, count in zip(_ACTIONS, self._sums[3:], strict=True) if count]
        if self._signals and SignalAction.STOP in asked:
            self._signals.stopping = True
        return asked[-1] if asked else SignalAction.NONE

    def _pop_signal(self) -> SignalAction:
        self.pending = self._signals.take() if self._signals else SignalAction.NONE
        self.terminated |= self._signals is not None and self._signals.terminated
        return self.pending

    def _fill(self, loss: float, action: SignalAction) -> None:
        terminated = self._signals is not None and self._signals.terminated
        self._sums[:] = [loss, self.overflow, terminated, *(action is each for each in _ACTIONS)]
