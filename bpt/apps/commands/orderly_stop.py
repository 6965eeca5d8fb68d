"""OrderlyStop: decides how long a rank may take to stop after SIGTERM, when its launcher has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bpt.base.signals import SignalActions
from bpt.system.comm import proxy
from bpt.system.comm.base import Communicator
from bpt.system.comm.processes import Peers, identity

_TO_STOP = 30.0  # seconds until an iteration ends, in addition to _TIMES the longest iteration
_TIMES = 3
_TO_WRITE = 900.0  # seconds in which all files must be written
_FAILED = 1.0  # seconds left to the other ranks if a rank had failed before SIGTERM
_LEFT = 5.0  # seconds between the end of the first rank and the end of the last


class OrderlyStop:
    """Watches whether a rank whose proxy has passed SIGTERM on can still stop in good order.

    A launcher ends a job because a user asked it to, or because a rank has failed. In the second case the other ranks
    would wait for the failed rank forever.

    Args:
        signals: this rank's signals.
        peers: the processes of the other ranks on this host; ``None``: the run survives their loss.
        in_step: whether all ranks check ``signals`` after each iteration.

    Attributes:
        unsaved: returns a description of what a snapshot would save now.
    """

    def __init__(self, signals: SignalActions, peers: Peers | None, in_step: bool) -> None:
        self.unsaved: Callable[[], str] = lambda: "what was trained since the last snapshot"
        self._signals = signals
        self._peers = peers
        self._in_step = in_step
        self._first = 0.0  # time of the first call of problem
        self._gone = 0.0  # time at which a lost rank was first seen

    def problem(self) -> str:
        """Return why waiting is useless; "": the rank can still stop in good order."""
        now = time.monotonic()
        gone = self._peers.gone() if self._peers else []
        if gone and not self._gone:
            self._gone = now
            if not self._first:
                proxied = proxy.own_proxy()
                assert proxied
                proxied.lost_ranks = gone
        self._first = self._first or now
        before = self._gone == self._first
        if gone and now - self._gone > (_FAILED if before else _LEFT):
            return f"rank {gone[0]} has ended before the others could stop; lost: {self.unsaved()}"
        waits = self._in_step and not self._signals.stopping
        limit = _TO_STOP + _TIMES * self._signals.longest if waits else _TO_WRITE
        if now - self._first > limit:
            return f"the run has not stopped within {limit:.0f} s after SIGTERM; lost: {self.unsaved()}"
        return ""


@contextmanager
def stopping_in_order(world: Communicator, signals: SignalActions, in_step: bool) -> Iterator[OrderlyStop]:
    """Let ranks that have a proxy stop in good order although their launcher ends; a collective call."""
    identities = world.allgather((world.host, identity()))
    others = {
        rank: identity for rank, (host, identity) in enumerate(identities) if host == world.host and rank != world.rank
    }
    tolerant = world.describe().get("fault tolerance") == "on"
    peers = Peers({} if tolerant else others)
    stop = OrderlyStop(signals, peers, in_step)
    if proxied := proxy.own_proxy():
        proxied.watch = stop.problem
    try:
        with signals.before_training():
            yield stop
    finally:
        peers.close()
