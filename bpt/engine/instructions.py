"""The instructions of a rank's iteration, which print in a few characters: ``F0 B0 X0 W U``.

In a pipeline an instruction names a micro-batch, as in ``F0.2``. Values (``S``, ``R``) and diffs (``s``, ``r``) travel
between stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple


class InstructionStep(NamedTuple):
    """An instruction without its micro-batch, which prints as `F0`, `S1` or `W`.

    Attributes:
        kind: the class of the instruction.
        number: the number of the segment or of the transfer.
        diff: whether a transfer is that of a diff, on the way back.
    """

    kind: type[InstructionBase]
    number: int | None = None
    diff: bool = False

    def __str__(self) -> str:
        letter = self.kind.letter.lower() if self.diff else self.kind.letter
        return letter if self.number is None else f"{letter}{self.number}"

    @property
    def phase(self) -> str:
        """The phase of the instruction."""
        return self.kind.phase


class InstructionBase:
    """The base of all instructions.

    Attributes:
        letter: the letter with which it prints.
        phase: the phase of an iteration that its time counts to (CGDP, Table 2), or "pipeline".
    """

    letter: ClassVar[str]
    phase: ClassVar[str]
    _number: ClassVar[str]  # the field that follows the letter

    def __init_subclass__(cls, *, letter: str, phase: str, number: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.letter, cls.phase, cls._number = letter, phase, number

    @property
    def step(self) -> InstructionStep:
        """The instruction without its micro-batch."""
        return InstructionStep(type(self), getattr(self, self._number, None), getattr(self, "diff", False))

    def __str__(self) -> str:
        micro = getattr(self, "micro", None)
        return str(self.step) if micro is None else f"{self.step}.{micro}"


@dataclass(frozen=True)
class Broadcast(InstructionBase, letter="C", phase="broadcast"):
    """Receive the weights of the rank that updates them."""


@dataclass(frozen=True)
class Gather(InstructionBase, letter="G", phase="broadcast", number="segment"):
    """Wait for the weights of segment ``segment`` that other ranks have updated (`update: SHARDED`)."""

    segment: int


@dataclass(frozen=True)
class LoadBatch(InstructionBase, letter="D", phase="forward"):
    """Run the layers without bottoms: a batch for the pass whose first micro-batch is ``micro``."""

    micro: int

    def __str__(self) -> str:
        return f"D{self.micro}"


@dataclass(frozen=True)
class Forward(InstructionBase, letter="F", phase="forward", number="segment"):
    """Run segment ``segment`` forward and keep what its backward needs.

    ``micro`` is the micro-batch, numbered through all passes of the iteration; ``None``: batches are not divided.
    """

    segment: int
    micro: int | None = None


@dataclass(frozen=True)
class Backward(InstructionBase, letter="B", phase="backward", number="segment"):
    """Run segment ``segment`` backward: diffs of its inputs, gradients of its parameters (added up)."""

    segment: int
    micro: int | None = None


@dataclass(frozen=True)
class BackwardInputs(InstructionBase, letter="I", phase="backward", number="segment"):
    """Run the first part of a backward pass in two: the diffs of the segment's inputs (Qi et al. 2024: B).

    Gradients of parameters that follow from a matrix product are left to ``BackwardWeights``.
    """

    segment: int
    micro: int | None = None


@dataclass(frozen=True)
class BackwardWeights(InstructionBase, letter="V", phase="backward", number="segment"):
    """Run the second part of a backward pass in two: the gradients that the first part has left (Qi et al. 2024: W)."""

    segment: int
    micro: int | None = None


@dataclass(frozen=True)
class ForwardBackward(InstructionBase, letter="P", phase="backward", number="segment"):
    """Run segment ``segment`` forward and backward, where nothing has to happen in between.

    The backward pass waits for the forward pass piece by piece. Only while nobody times the phases.
    """

    segment: int


@dataclass(frozen=True)
class Send(InstructionBase, letter="S", phase="pipeline", number="transfer"):
    """Start to send the values of transfer ``transfer`` to the stage that reads them; or their diff back."""

    transfer: int
    micro: int
    diff: bool = False


@dataclass(frozen=True)
class Recv(InstructionBase, letter="R", phase="pipeline", number="transfer"):
    """Wait for the values of transfer ``transfer``; or for their diff."""

    transfer: int
    micro: int
    diff: bool = False


@dataclass(frozen=True)
class PostRecv(InstructionBase, letter="E", phase="pipeline", number="transfer"):
    """Start to receive a diff that another stage sends by the end of this iteration and a later one waits for."""

    transfer: int
    micro: int
    diff: ClassVar[bool] = True


@dataclass(frozen=True)
class ReleaseBatch(InstructionBase, letter="T", phase="pipeline"):
    """Release batch ``batch``, which no instruction names any more; show outputs as late as losses.

    ``None``: no batch has come back yet. Only where batches outlive iterations; elsewhere Wait ends them all.
    """

    batch: int | None

    def __str__(self) -> str:
        return "T" if self.batch is None else f"T{self.batch}"


@dataclass(frozen=True)
class ExchangePiece(InstructionBase, letter="Y", phase="exchange", number="segment"):
    """Exchange the blobs of a piece of the batch, of a split segment, while the segment runs on another piece.

    The communication thread executes it within a ``Forward`` or, with ``diff``, within a ``Backward``.
    """

    segment: int
    diff: bool = False


@dataclass(frozen=True)
class ExchangeGradients(InstructionBase, letter="X", phase="exchange", number="segment"):
    """Start to sum the finished gradients of segment ``segment`` over the ranks that hold its parameters."""

    segment: int


@dataclass(frozen=True)
class Wait(InstructionBase, letter="W", phase="exchange"):
    """Wait for all exchanges that were started; gradients are then those of the whole batch.

    ``in_step``: also wait for messages between stages, which otherwise stay under way from iteration to iteration.
    """

    in_step: bool = True


@dataclass(frozen=True)
class UpdateWeights(InstructionBase, letter="U", phase="update"):
    """Apply the solver's update rule to the gradients, if there are any, and clear them."""


@dataclass(frozen=True)
class Average(InstructionBase, letter="A", phase="exchange"):
    """Replace the weights by their average over all replicas, which update on their own (`exchange: LOCAL`)."""


Instruction = (
    Broadcast
    | Gather
    | LoadBatch
    | Forward
    | Backward
    | BackwardInputs
    | BackwardWeights
    | ForwardBackward
    | Send
    | Recv
    | PostRecv
    | ReleaseBatch
    | ExchangeGradients
    | Wait
    | UpdateWeights
    | Average
)
