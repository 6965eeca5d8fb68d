"""The times of a simulated pipeline's work, and the trace of its stages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bpt.engine.instructions import Instruction


class PipelineTimes(Protocol):
    """The seconds of a pipeline's work: forward, backward and transfer of one micro-batch."""

    def forward(self, stage: int, segment: int) -> float: ...

    def backward(self, stage: int, segment: int) -> float: ...

    def weights(self, stage: int, segment: int) -> float:
        """Return the part of ``backward`` that a backward pass in two computes in its second part."""
        ...

    def transfer(self, flow: int, diff: bool) -> float:
        """Return how long the values of flow ``flow``, or their diff, occupy the link between its stages."""
        ...

    def latency(self, flow: int, diff: bool) -> float:
        """Return how much later they arrive, while the link is free for others."""
        ...

    def exchange(self, stage: int, segment: int) -> float: ...

    def update(self, stage: int) -> float: ...


@dataclass(frozen=True)
class EqualTimes:
    """PipelineTimes in which all segments and all flows take the same time."""

    forwards: float = 1.0
    backwards: float = 2.0
    transfers: float = 0.0
    latencies: float = 0.0
    exchanges: float = 0.0
    updates: float = 0.0

    def forward(self, stage: int, segment: int) -> float:
        return self.forwards

    def backward(self, stage: int, segment: int) -> float:
        return self.backwards

    def weights(self, stage: int, segment: int) -> float:
        return self.backwards / 2

    def transfer(self, flow: int, diff: bool) -> float:
        return self.transfers

    def latency(self, flow: int, diff: bool) -> float:
        return self.latencies

    def exchange(self, stage: int, segment: int) -> float:
        return self.exchanges

    def update(self, stage: int) -> float:
        return self.updates


COMPUTE, EXCHANGE = "compute", "exchange"  # streams; the others are links, "to 1"


class StageEvent(NamedTuple):
    """The work of one stream of a stage from ``start`` to ``end`` (seconds)."""

    stage: int
    stream: str
    instruction: Instruction
    start: float
    end: float

    @property
    def label(self) -> str:
        """The label of the instruction, such as ``F0.2``."""
        return str(self.instruction)


@dataclass(frozen=True)
class PipelineTrace:
    """The work of all stages.

    Attributes:
        events: forward, backward, update; exchanges; messages. In the order in which they began.
        ends: for each stage, when it had done its last instruction.
        busy: for each stage, seconds in forward, backward and update.
        waiting: for each stage, seconds in which it waited for a message or for an exchange, before its last
            instruction.
        peaks: for each segment, the largest number of micro-batches that had gone forward and not yet backward, at a
            time. That of a block is the largest of its segments' (``peak``).
        steps: when the slowest stage had done its first update, its second, …
        left: messages that were sent and never received (of the diffs of DELAYED, the last ones), in order:
            ``s0.3``.
    """

    events: tuple[StageEvent, ...]
    ends: tuple[float, ...]
    busy: tuple[float, ...]
    waiting: tuple[float, ...]
    peaks: Mapping[int, int]
    steps: tuple[float, ...]
    left: tuple[str, ...]

    @property
    def time(self) -> float:
        """The seconds from the start until all stages have done their last instruction."""
        return max(self.ends, default=0.0)

    @property
    def bubbles(self) -> tuple[float, ...]:
        """For each stage, the part of the time in which it does not compute."""
        return tuple(1 - busy / self.time if self.time else 0.0 for busy in self.busy)

    @property
    def bubble(self) -> float:
        """The part of all stages' time in which they do not compute."""
        return math.fsum(self.bubbles) / len(self.bubbles) if self.bubbles else 0.0

    def peak(self, segments: range) -> int:
        """Return the largest number of micro-batches in flight in a block."""
        return max((self.peaks.get(segment, 0) for segment in segments), default=0)
