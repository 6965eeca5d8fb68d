"""How long things take in a simulated pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Times(Protocol):
    """Seconds; forward, backward and transfer of one micro-batch."""

    def forward(self, stage: int, segment: int) -> float: ...

    def backward(self, stage: int, segment: int) -> float: ...

    def transfer(self, flow: int, diff: bool) -> float:
        """How long the values of flow ``flow``, or their diff, keep the link between its stages busy."""
        ...

    def exchange(self, stage: int, segment: int) -> float: ...

    def update(self, stage: int) -> float: ...


@dataclass(frozen=True)
class EqualTimes:
    """All segments and all flows take the same."""

    forwards: float = 1.0
    backwards: float = 2.0
    transfers: float = 0.0
    exchanges: float = 0.0
    updates: float = 0.0

    def forward(self, stage: int, segment: int) -> float:
        return self.forwards

    def backward(self, stage: int, segment: int) -> float:
        return self.backwards

    def transfer(self, flow: int, diff: bool) -> float:
        return self.transfers

    def exchange(self, stage: int, segment: int) -> float:
        return self.exchanges

    def update(self, stage: int) -> float:
        return self.updates
