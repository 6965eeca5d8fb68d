"""How long a rank's instructions take, by phase (CGDP, Table 2): broadcast, forward, backward, exchange, update."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bpt.comm.counters import Traffic
from bpt.schedule.instructions import Backward, Broadcast, Exchange, Forward, Instruction, Update, Wait

PHASES = {
    Broadcast: "broadcast",
    Forward: "forward",
    Backward: "backward",
    Exchange: "exchange",
    Wait: "exchange",
    Update: "update",
}


def computing(phases: Mapping[str, float], traffic: Mapping[tuple[str, str], Traffic]) -> float:
    """Seconds of forward, backward and update in ``phases``, without those in calls to other ranks."""
    waiting = sum(t.seconds for (label, _), t in traffic.items() if label[:1] in ("F", "B", "U"))
    return phases["forward"] + phases["backward"] + phases["update"] - waiting


class Clock:
    """Seconds of each phase since the last ``take``.

    ``exchange`` is what the exchange adds to an iteration: packing, and waiting for what backward did not hide.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES.values(), 0.0)

    @contextmanager
    def during(self, instruction: Instruction) -> Iterator[None]:
        """Time one instruction."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[PHASES[type(instruction)]] += time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """Phase → seconds since the last call."""
        seconds, self._seconds = self._seconds, dict.fromkeys(self._seconds, 0.0)
        return seconds
