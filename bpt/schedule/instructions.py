"""The steps of which a rank's iteration is made. They print in a few characters: ``F0 B0 U``."""

from __future__ import annotations

from dataclasses import dataclass


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
class Update:
    """Apply the solver's update rule to the gradients that have added up, and clear them."""

    def __str__(self) -> str:
        return "U"


Instruction = Forward | Backward | Update
