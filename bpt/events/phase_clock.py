"""How long a rank's instructions take, by phase: those of CGDP's Table 2 (broadcast, forward, backward, exchange,
update), and waiting for other stages of a pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from bpt.comm.counters import Traffic
from bpt.device import CPU, finish
from bpt.schedule.instructions import (
    Backward,
    Broadcast,
    Draw,
    Exchange,
    Forward,
    Instruction,
    Recv,
    Send,
    Update,
    Wait,
)  # fmt: skip

PHASES = {
    Broadcast: "broadcast",
    Draw: "forward",
    Forward: "forward",
    Backward: "backward",
    Send: "pipeline",
    Recv: "pipeline",
    Exchange: "exchange",
    Wait: "exchange",
    Update: "update",
}


def computing(phases: Mapping[str, float], traffic: Mapping[tuple[str, str], Traffic]) -> float:
    """Seconds of forward, backward and update in ``phases``, without those in calls to other ranks."""
    waiting = sum(t.seconds for (label, _), t in traffic.items() if label[:1] in ("F", "B", "U"))
    return phases["forward"] + phases["backward"] + phases["update"] - waiting


class Clock:
    """Seconds of each phase, and of each instruction, since the last ``take``.

    ``exchange`` is what the exchange adds to an iteration: packing, and waiting for what backward did not hide.

    Attributes:
        precise: wait for the device at the end of each instruction. Without, a device that goes on by itself makes
            its work appear in a later one; with, the whole takes a little longer.
    """

    def __init__(self, device: torch.device = CPU) -> None:
        self.precise = False
        self._device = device
        self._seconds = dict.fromkeys(PHASES.values(), 0.0)
        self._by_instruction: dict[str, float] = {}

    @contextmanager
    def during(self, instruction: Instruction) -> Iterator[None]:
        """Time one instruction."""
        start = time.perf_counter()
        try:
            yield
            if self.precise:
                finish(self._device)
        finally:
            seconds = time.perf_counter() - start
            name = str(instruction)
            self._seconds[PHASES[type(instruction)]] += seconds
            self._by_instruction[name] = self._by_instruction.get(name, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Phase → seconds since the last call."""
        seconds, self._seconds = self._seconds, dict.fromkeys(self._seconds, 0.0)
        return seconds

    def take_instructions(self) -> dict[str, float]:
        """Instruction, as it prints, → seconds since the last call of this method."""
        seconds, self._by_instruction = self._by_instruction, {}
        return seconds
