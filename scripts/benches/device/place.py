"""Where a part of ``scripts/check_gpu`` runs, and what it has found."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bpt.system.device import CPU, synchronize
from bpt.system.device.memory_use import Memory


@dataclass(frozen=True)
class Place:
    """The device that a part checks.

    Attributes:
        gpu: number of the device; empty: a dry run, which is the same on the CPU with small batches.
        folder: for files of the part that stay.
    """

    gpu: str
    folder: Path

    @property
    def dry(self) -> bool:
        """Whether this is a dry run."""
        return not self.gpu

    @property
    def device(self) -> torch.device:
        """The device that torch computes on."""
        return CPU if self.dry else torch.device("cuda", int(self.gpu))

    @property
    def flags(self) -> list[str]:
        """The flags of ``bpt`` that choose the device."""
        return [] if self.dry else ["--gpu", self.gpu]


@dataclass
class Findings:
    """What a part has found.

    Attributes:
        figures: for the JSON file, by name.
        lines: for the table, a line each.
        faults: what is wrong; a part with faults has failed.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Timing:
    """The time and memory of a side.

    Attributes:
        ms: of a step, the median.
        peak_mib: the most memory that the process had meanwhile.
    """

    ms: float
    peak_mib: float


def time_steps(place: Place, make: Callable[[], Callable[[], object]], warm_up: int, steps: int) -> Timing:
    """Make a side and time its steps; nothing of it is left afterwards.

    The device is waited for at the end of a turn only, so that the host may run ahead of it as in training.
    """
    memory = Memory(place.device)
    memory.reset()
    step = make()
    for _ in range(1 if place.dry else warm_up):
        step()
    turns, steps = (2, 1) if place.dry else (5, steps)
    seconds = []
    for _ in range(turns):
        synchronize(place.device)
        start = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize(place.device)
        seconds.append((time.perf_counter() - start) / steps)
    found = Timing(median(seconds) * 1e3, memory.peak / 2**20)
    del step
    gc.collect()
    if not place.dry:
        torch.cuda.empty_cache()
    return found


def compare(place: Place, sides: dict[str, Callable[[], Callable[[], object]]], warm_up: int, steps: int) -> Findings:
    """Time sides one after the other; those named "bpt …" are ours, and must work.

    A side of plain PyTorch that does not work here, such as a compiled one without a compiler, is only noted.
    """
    findings = Findings()
    best: dict[bool, float] = {}
    for name, make in sides.items():
        ours = name.startswith("bpt")
        try:
            timing = time_steps(place, make, warm_up, steps)
        except Exception as error:  # of any library below; the other sides go on
            why = (str(error).splitlines() or [type(error).__name__])[0]
            findings.figures[name] = {"error": why}
            findings.lines.append(f"{name}: {why}")
            if ours:
                findings.faults.append(f"{name}: {why}")
            continue
        findings.figures[name] = {"ms": timing.ms, "peak_mib": timing.peak_mib}
        findings.lines.append(f"{name}: {timing.ms:.3f} ms, {timing.peak_mib:.0f} MiB")
        best[ours] = min(timing.ms, best.get(ours, timing.ms))
    if len(best) == 2:
        findings.figures["ratio"] = best[True] / best[False]
        findings.lines.append(f"bpt / best plain: {best[True] / best[False]:.3f}")
    return findings
