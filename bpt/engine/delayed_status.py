"""DelayedStatus: a status that ranks know some iterations later, so that those which run ahead need not wait."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bpt.base.signals import SignalActions
from bpt.engine.instructions import Wait
from bpt.engine.status import Status
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.events.flight_recorder import WAIT

Floats = NDArray[np.float64]


class DelayedStatus(Status):
    """Sums losses and signals of an iteration; ``loss`` and ``action`` are those of ``lag`` iterations ago.

    In the first ``lag`` iterations the loss is that of the first one. A signal is reported once.
    """

    def __init__(self, world: Communicator, signals: SignalActions | None, lag: int) -> None:
        self._own_thread = CommThread(world)
        super().__init__(world, self._own_thread, signals)
        self._lag = lag
        self._under_way: deque[Future[Floats]] = deque()

    def start(self, loss: float) -> None:
        """Start to sum over the ranks, and wait for the sum that is due."""
        self._sums = np.zeros_like(self._sums)
        self._fill(loss, self._pop_signal())
        under_way: Future[Floats] = Future()
        self._under_way.append(under_way)
        self._comm_thread.submit(partial(_sum, self._mine, self._sums, under_way), Wait())
        with self._mine.events.waiting(WAIT):
            due = self._under_way[0].result()
        self._sums = due.copy()
        due[1:] = 0
        if len(self._under_way) > self._lag:
            self._under_way.popleft()

    def forget(self) -> None:
        self._under_way.clear()

    def close(self, failed: bool = False) -> None:
        super().close(failed)
        self._own_thread.close()


def _sum(comm: Communicator, sums: Floats, under_way: Future[Floats]) -> None:
    try:
        comm.Allreduce(sums)
    except BaseException as error:
        under_way.set_exception(error)
        raise
    under_way.set_result(sums)
