"""How much the slowest device counts, and how much the way of a micro-batch through all of them."""

from __future__ import annotations

from dataclasses import dataclass

SLIGHT = 1e-10  # relative: what decides between equals


@dataclass(frozen=True)
class Weights:
    """Of the two parts of STEP_TIME: ``slowest`` of the slowest device's time, ``through`` of all without overlap.

    None of them is 0, so that of placements that are equal in the one part that counts the better one is preferred.
    """

    slowest: float
    through: float

    @classmethod
    def of(cls, filling: float) -> Weights:
        """Those of ``StepTime``, but for less than rounding."""
        return cls(max(1 - filling, SLIGHT), max(filling, SLIGHT))

    def cost(self, slowest: float, through: float) -> float:
        return self.slowest * slowest + self.through * through
