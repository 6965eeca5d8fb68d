"""What an OuterSchedule yields: what to do to the global weights, and what to tell whom. In the order of execution."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from bpt.schedule.outer.messages import Order
from bpt.schedule.weight_update import Update


@dataclass(frozen=True)
class Merge:
    """AGWU: W^(i) = W^(i-1) + factor · (W_j - W^(k)), as ``update`` says (Eq. 10)."""

    update: Update


@dataclass(frozen=True)
class Average:
    """SGWU: W^(i) = Σ_j factor_j · W_j (Eq. 7).

    Attributes:
        workers: who has submitted, in order of their number.
        factors: of each of them; they add up to 1.
        version: i.
    """

    workers: tuple[int, ...]
    factors: tuple[float, ...]
    version: int


@dataclass(frozen=True)
class Descend:
    """ASGD: the solver's update rule with the gradient of a worker.

    Attributes:
        update: γ and Q do not count.
        progress: the part of all training that was done before, from 0 to 1; learning rates follow it.
    """

    update: Update
    progress: Fraction


@dataclass(frozen=True)
class Send:
    """Give a worker its order, with the newest weights if it says so."""

    order: Order


@dataclass(frozen=True)
class Lost:
    """Workers are gone.

    Attributes:
        workers: in order of their number.
        taken_over: whether what they had is in orders that follow; otherwise all others are in their last passes.
    """

    workers: tuple[int, ...]
    taken_over: bool = True


@dataclass(frozen=True)
class Cut:
    """A worker has submitted earlier than it was ordered to, since the run is being stopped.

    Attributes:
        worker: from 0.
        passes: that it had done.
        iterations: since its order.
    """

    worker: int
    passes: Fraction
    iterations: int


@dataclass(frozen=True)
class Settled:
    """A worker has found out how it computes faster. No schedule yields this: workers tell it.

    Attributes:
        worker: from 0.
        engine: its memory layout, a value of SolverParameter.Engine.
        inner: its inner engine, a value of InnerParameter.Engine.
    """

    worker: int
    engine: int
    inner: int


Instruction: TypeAlias = Merge | Average | Descend | Send | Lost | Cut | Settled
