"""The instructions of an OuterSchedule, in the order of execution: updates of the global weights, and messages.

And what a worker and the server tell each other (weights and samples travel beside), and instructions as lines of text,
for the log that a run leaves and a replay reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from bpt.base.errors import UserError
from bpt.data.sample_partition import Run
from bpt.parallel.outer.outer_step import OuterStep
from bpt.parallel.outer.staleness import AS_SUBMITTED, Correction
from bpt.parallel.outer.update_factors import AgwuUpdate


@dataclass(frozen=True)
class SubmissionReport:
    """The report of a worker with its weights or, under ASGD, gradients.

    Attributes:
        worker: from 0.
        passes: how often it has gone through its own samples by now (local epochs).
        iterations: of training since its last order.
        samples: that it trained since then.
        seconds: that it computed since then.
        waited: seconds from its last submission until it could continue.
        accuracy: Q, of these samples; 1 if the net does not classify or Q is not to count.
        loss: mean over these iterations; NaN if there were none.
    """

    worker: int
    passes: Fraction
    iterations: int = 0
    samples: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    accuracy: float = 1.0
    loss: float = math.nan


@dataclass(frozen=True)
class Order:
    """The next work of a worker.

    Attributes:
        worker: from 0.
        version: of the newest global weights.
        until: the passes, all together, after which it submits.
        passes: that it has done, or missed, by now.
        runs: samples that it gets, beside those that it has; a new pass begins with them.
        iterations: the iterations after which it submits already (ASGD); 0: only at the end of a pass.
        weights: whether the global weights come with the order; otherwise the worker continues with its own.
        stop: there is nothing more to train.
        batch: a, the newest batch of samples that has been handed out; for reports.
        gives: samples that it has no more from this pass on.
    """

    worker: int
    version: int
    until: Fraction = Fraction(0)
    passes: Fraction = Fraction(0)
    runs: tuple[Run, ...] = ()
    iterations: int = 0
    weights: bool = True
    stop: bool = False
    batch: int = 0
    gives: tuple[Run, ...] = ()

    def __str__(self) -> str:
        if self.stop:
            return f"stop {self.worker}"
        gives = f", gives {list(self.gives)}" if self.gives else ""
        runs = f"runs {list(self.runs)}{gives}"
        return f"worker {self.worker}: version {self.version}, to pass {float(self.until):g}, {runs}"


@dataclass(frozen=True)
class Merge:
    """AGWU: W^(i) = W^(i-1) + factor · (W_j - W^(k)), as ``update`` says (Eq. 10).

    Attributes:
        correction: of the change, by its staleness.
        step: the outer optimizer's step with the change; ``None``: the change is added.
    """

    update: AgwuUpdate
    correction: Correction = AS_SUBMITTED
    step: OuterStep | None = None


@dataclass(frozen=True)
class AverageSubmitted:
    """SGWU: W^(i) = Σ_j factor_j · W_j (Eq. 7).

    Attributes:
        workers: the workers that have submitted, in order.
        factors: of each of them; they add up to 1.
        version: i.
        step: the outer optimizer's step from W^(i-1) towards the average; ``None``: W^(i) is the average.
    """

    workers: tuple[int, ...]
    factors: tuple[float, ...]
    version: int
    step: OuterStep | None = None


@dataclass(frozen=True)
class ApplyGradient:
    """ASGD: apply a worker's gradient by the solver's update rule.

    Attributes:
        update: γ and Q do not count.
        progress: the part of all training that was done before, from 0 to 1; learning rates follow it.
        correction: of the gradient, by its staleness.
    """

    update: AgwuUpdate
    progress: Fraction
    correction: Correction = AS_SUBMITTED


@dataclass(frozen=True)
class Discard:
    """Drop a submission that is too stale; it makes no version."""

    update: AgwuUpdate


@dataclass(frozen=True)
class SendOrder:
    """Give a worker its order, with the newest weights if it says so."""

    order: Order


@dataclass(frozen=True)
class Lost:
    """The loss of workers.

    Attributes:
        workers: in order of their number.
        taken_over: whether what they had is in orders that follow; otherwise all others are in their last passes.
    """

    workers: tuple[int, ...]
    taken_over: bool = True


@dataclass(frozen=True)
class Migrated:
    """Samples that change hands between two workers that are alive; the orders that tell them follow.

    Attributes:
        giver, taker: the workers.
        samples: how many.
        times: seconds of a sample when the samples were divided last, and now: of the giver, then of the taker.
            0: none was measured.
        longest: seconds of the longest pass of all workers: if no samples had moved, and as it is expected to become.
    """

    giver: int
    taker: int
    samples: int
    times: tuple[float, float, float, float]
    longest: tuple[float, float]


@dataclass(frozen=True)
class CutShort:
    """The early submission of a worker, since the run is being stopped.

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
    """The way of computing that a worker has found to be faster; workers report it, no schedule yields it.

    Attributes:
        worker: from 0.
        engine: its memory layout, a value of SolverParameter.Engine.
        inner: its inner engine, a value of InnerParameter.Engine.
    """

    worker: int
    engine: int
    inner: int


OuterInstruction: TypeAlias = (
    Merge | AverageSubmitted | ApplyGradient | Discard | SendOrder | Lost | Migrated | CutShort | Settled
)


Fields = Mapping[str, Any]


# Logs of all versions have these names.
_NAMES_IN_LOGS: dict[type[OuterInstruction], str] = {
    AverageSubmitted: "Average", ApplyGradient: "Descend", SendOrder: "Send", CutShort: "Cut",
}  # fmt: skip


def to_line(instruction: OuterInstruction) -> str:
    """Return one line of JSON; numbers are exact.

    What most runs do not have is left out: samples that an order gives, damping, corrections and outer steps.
    """
    kind, fields = type(instruction), asdict(instruction)
    if isinstance(instruction, SendOrder) and not instruction.order.gives:
        del fields["order"]["gives"]
    if fields.get("update", {}).get("damping") == 1.0:
        del fields["update"]["damping"]
    for name, absent in (("correction", asdict(AS_SUBMITTED)), ("step", None)):
        if name in fields and fields[name] == absent:
            del fields[name]
    return json.dumps({_NAMES_IN_LOGS.get(kind, kind.__name__): fields}, default=str)


def from_line(line: str) -> OuterInstruction:
    """Return the instruction or report that ``to_line`` has written.

    Raises:
        UserError: it is something else; the message does not say where.
    """
    try:
        ((name, fields),) = json.loads(line).items()
        return _MAKERS[name](fields)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise UserError(f"this is no instruction of a replay log: {line.strip()[:80]!r}") from error


def _order(fields: Fields) -> Order:
    runs, gives = (
        tuple((int(start), int(stop)) for start, stop in fields_of)
        for fields_of in (fields["runs"], fields.get("gives", ()))
    )
    passes = {name: Fraction(fields[name]) for name in ("until", "passes")}
    return Order(**{**fields, **passes, "runs": runs, "gives": gives})


def _update(fields: Fields) -> dict[str, Any]:
    """Return the fields of an update, with its correction and its step."""
    made: dict[str, Any] = {"update": AgwuUpdate(**fields["update"])}
    if correction := fields.get("correction"):
        table = tuple((int(worker), float(weight)) for worker, weight in correction["table"])
        made["correction"] = Correction(correction["compensation"], table)
    return made | _step(fields)


def _step(fields: Fields) -> dict[str, OuterStep]:
    return {"step": OuterStep(**fields["step"])} if "step" in fields else {}


_MAKERS: dict[str, Callable[[Fields], OuterInstruction]] = {
    "Merge": lambda fields: Merge(**_update(fields)),
    "Descend": lambda fields: ApplyGradient(progress=Fraction(fields["progress"]), **_update(fields)),
    "Discard": lambda fields: Discard(**_update(fields)),
    "Average": lambda fields: AverageSubmitted(
        tuple(fields["workers"]), tuple(fields["factors"]), fields["version"], **_step(fields)
    ),
    "Send": lambda fields: SendOrder(_order(fields["order"])),
    "Cut": lambda fields: CutShort(fields["worker"], Fraction(fields["passes"]), fields["iterations"]),
    "Settled": lambda fields: Settled(**fields),
    "Migrated": lambda fields: Migrated(
        **{**fields, "times": tuple(fields["times"]), "longest": tuple(fields["longest"])}
    ),
    "Lost": lambda fields: Lost(tuple(fields["workers"]), fields["taken_over"]),
}
