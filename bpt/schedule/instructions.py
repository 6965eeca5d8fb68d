"""The steps of which a rank's iteration is made. They print in a few characters: ``F0 B0 X0 W U``.

In a pipeline a step is one of a micro-batch, ``F0.2``, and values (``S``, ``R``) and diffs (``s``, ``r``) travel
between stages.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Broadcast:
    """Take over the weights of the rank that updates them."""

    def __str__(self) -> str:
        return "C"


@dataclass(frozen=True)
class Draw:
    """Run the layers without bottoms: a batch for the pass whose first micro-batch is ``micro``."""

    micro: int

    def __str__(self) -> str:
        return f"D{self.micro}"


@dataclass(frozen=True)
class Forward:
    """Run segment ``segment`` forward and keep what its backward needs.

    ``micro`` is the micro-batch, numbered through all passes of the iteration; ``None``: batches are not divided.
    """

    segment: int
    micro: int | None = None

    def __str__(self) -> str:
        return f"F{self.segment}{_part(self.micro)}"


@dataclass(frozen=True)
class Backward:
    """Run segment ``segment`` backward: diffs of its inputs, gradients of its parameters (added up)."""

    segment: int
    micro: int | None = None

    def __str__(self) -> str:
        return f"B{self.segment}{_part(self.micro)}"


@dataclass(frozen=True)
class Send:
    """Start to send the values of transfer ``transfer`` to the stage that reads them; or their diff back."""

    transfer: int
    micro: int
    diff: bool = False

    def __str__(self) -> str:
        return f"{'s' if self.diff else 'S'}{self.transfer}.{self.micro}"


@dataclass(frozen=True)
class Recv:
    """Wait for the values of transfer ``transfer``; or for their diff."""

    transfer: int
    micro: int
    diff: bool = False

    def __str__(self) -> str:
        return f"{'r' if self.diff else 'R'}{self.transfer}.{self.micro}"


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


def _part(micro: int | None) -> str:
    return "" if micro is None else f".{micro}"


Instruction = Broadcast | Draw | Forward | Backward | Send | Recv | Exchange | Wait | Update
