"""Watchdog: ends the job, with a word, when the ranks wait for each other too long. The doctor must not hang."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from bpt.comm.base import Communicator
from bpt.doctor.findings import problem

SECONDS = 120.0
_LATER = 10.0  # seconds that the other ranks give the first to say it


class Watchdog:
    """Watches over steps that all ranks do together.

    Args:
        world: all ranks; ``Abort`` ends them.
        say: prints what happened.
        seconds: how long a step may take.
    """

    def __init__(self, world: Communicator, say: Callable[[str], object], seconds: float = SECONDS) -> None:
        self._world = world
        self._say = say
        self._seconds = seconds + (_LATER if world.rank else 0.0)

    @contextlib.contextmanager
    def during(self, step: str) -> Iterator[None]:
        """End the job unless what runs inside ends in time."""
        if self._world.size == 1:
            yield
            return
        timer = threading.Timer(self._seconds, self._give_up, (step,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, step: str) -> None:
        world = self._world
        found = problem(
            f"{step}: not done after {self._seconds:.0f} s: rank {world.rank} on host {world.host} waits for another",
            "see whether all ranks still run (top), whether a file system hangs, and whether a firewall stands "
            "between the hosts",
        )
        self._say(f"{found.kind.value} {found.text}\n → {found.remedy}")
        world.Abort(1)
