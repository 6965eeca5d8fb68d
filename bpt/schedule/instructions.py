"""The steps of which a rank's iteration is made. They print in a few characters: ``F0 B0 X0 W U``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Broadcast:
    """Take over the weights of the rank that updates them."""

    def __str__(self) -> str:
        return "C"


@dataclass(frozen=True)
class Forward:
    """Run segment ``segment`` forward and keep what its backward needs."""

    segment: int

    def __str__(self) -> str:
        return f"F{self.segment}"


@dataclass(frozen=True)
class Backward:
    """Run segment ``segment`` backward: diffs of its inputs, gradients of its parameters (added up)."""

    segment: int

    def __str__(self) -> str:
        return f"B{self.segment}"


@dataclass(frozen=True)
class Exchange:
    """Start to sum the finished gradients of segment ``segment`` over the ranks that hold its parameters."""

    segment: int

    def __str__(self) -> str:
        return f"X{self.segment}"


@dataclass(frozen=True)
class Wait:
    """Wait until all that was started is done: gradients are those of the whole batch."""

    def __str__(self) -> str:
        return "W"


@dataclass(frozen=True)
class Update:
    """Apply the solver's update rule to the gradients that have added up, and clear them."""

    def __str__(self) -> str:
        return "U"


Instruction = Broadcast | Forward | Backward | Exchange | Wait | Update
