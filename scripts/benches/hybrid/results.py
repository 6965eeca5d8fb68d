"""What ``scripts/bench hybrid`` tells: what was predicted of placements, what was measured, and how these compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

GAIN, ERROR = 0.90, 0.15  # goals: at least so much of the predicted gain, at most such an error of a prediction


@dataclass(frozen=True)
class Turn:
    """What was seen of one pipeline in a turn.

    Attributes:
        seconds: of each iteration.
        computing: seconds of an iteration in which each rank computes, the turn's mean.
        waiting: the same for waiting for other ranks.
    """

    seconds: tuple[float, ...]
    computing: tuple[float, ...]
    waiting: tuple[float, ...]


@dataclass(frozen=True)
class Seen:
    """One placement, as it was run.

    Attributes:
        stages: of each layer.
        turns: in their order.
    """

    stages: tuple[int, ...]
    turns: tuple[Turn, ...]

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Seen:
        """From what the first rank has written."""
        turns = (Turn(**{name: tuple(values) for name, values in turn.items()}) for turn in found["turns"])
        return cls(tuple(found["stages"]), tuple(turns))

    @property
    def seconds(self) -> float:
        """Of an iteration: the median over the turns of their medians."""
        return median(median(turn.seconds) for turn in self.turns)

    @property
    def computing(self) -> tuple[float, ...]:
        """Of each rank."""
        return _medians([turn.computing for turn in self.turns])


@dataclass(frozen=True)
class Side:
    """A placement, predicted and seen.

    Attributes:
        first: the first layer of the second stage, by name.
        predicted: seconds of an iteration.
        busy: of them, those in which each rank should compute.
    """

    first: str
    predicted: float
    busy: tuple[float, ...]
    seen: Seen

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured; above 0 if it is too long."""
        return self.predicted / self.seen.seconds - 1


@dataclass(frozen=True)
class Comparison:
    """One net under one schedule: an even split and the planned placement."""

    net: str
    schedule: str
    even: Side
    planned: Side

    @property
    def predicted(self) -> float:
        """How many times as fast the planned placement should be."""
        return self.even.predicted / self.planned.predicted

    @property
    def measured(self) -> float:
        """How many times as fast it was."""
        return self.even.seen.seconds / self.planned.seen.seconds

    @property
    def achieved(self) -> float:
        """The measured gain as a part of the predicted one."""
        return self.measured / self.predicted


@dataclass(frozen=True)
class Row:
    """A placement in the table: a line of one repeat, or of the medians over several.

    Attributes:
        first: the first layer of the second stage; several, if repeats differ.
        predicted, measured: seconds of an iteration.
        error: of the prediction.
        busy, computing: seconds of an iteration in which each rank should compute, and did.
    """

    first: str
    predicted: float
    measured: float
    error: float
    busy: tuple[float, ...]
    computing: tuple[float, ...]

    @classmethod
    def of(cls, sides: Sequence[Side]) -> Row:
        """The medians."""
        return cls(
            "|".join(dict.fromkeys(side.first for side in sides)),
            median(side.predicted for side in sides),
            median(side.seen.seconds for side in sides),
            median(side.error for side in sides),
            _medians([side.busy for side in sides]),
            _medians([side.seen.computing for side in sides]),
        )


@dataclass(frozen=True)
class Result:
    """One net under one schedule, by the medians over repeats.

    Attributes:
        predicted, measured, achieved: gains; see Comparison.
    """

    net: str
    schedule: str
    even: Row
    planned: Row
    predicted: float
    measured: float
    achieved: float

    @classmethod
    def of(cls, repeats: Sequence[Comparison]) -> Result:
        """From all repeats."""
        return cls(
            repeats[0].net,
            repeats[0].schedule,
            Row.of([found.even for found in repeats]),
            Row.of([found.planned for found in repeats]),
            median(found.predicted for found in repeats),
            median(found.measured for found in repeats),
            median(found.achieved for found in repeats),
        )


def results(comparisons: Sequence[Comparison]) -> list[Result]:
    """Of each net under each schedule, in the order in which they came."""
    found: dict[tuple[str, str], list[Comparison]] = {}
    for each in comparisons:
        found.setdefault((each.net, each.schedule), []).append(each)
    return [Result.of(repeats) for repeats in found.values()]


HEAD = (
    f"{'net':<13} {'schedule':<12} {'placement':<9} {'predicted':>9} {'measured':>9} {'error':>7} "
    f"{'computing: predicted':>21} {'measured':>13}  stage 1 from"
)


def table(found: Sequence[Result]) -> Iterator[str]:
    """Milliseconds of an iteration, predicted and measured, and the gains."""
    yield HEAD
    for result in found:
        for name, row in (("even", result.even), ("planned", result.planned)):
            busy, computing = (
                " / ".join(f"{value * 1e3:.0f}" for value in values) for values in (row.busy, row.computing)
            )
            net, schedule = (result.net, result.schedule) if name == "even" else ("", "")
            yield (
                f"{net:<13} {schedule:<12} {name:<9} {row.predicted * 1e3:>9.1f} {row.measured * 1e3:>9.1f} "
                f"{row.error:>+7.1%} {busy:>21} {computing:>13}  {row.first}"
            )
        yield (
            f"{'':<26} gain: predicted {result.predicted:.3f}, measured {result.measured:.3f}; "
            f"achieved / predicted {result.achieved:.1%}"
        )


def verdict(found: Sequence[Result]) -> Iterator[str]:
    """Whether the goals are met."""
    least = min(result.achieved for result in found)
    worst = max((row.error for result in found for row in (result.even, result.planned)), key=abs)
    yield f"least achieved / predicted gain {least:.1%}, goal {GAIN:.0%}: {_met(least >= GAIN)}"
    yield f"worst error of a prediction {worst:+.1%}, goal {ERROR:.0%}: {_met(abs(worst) <= ERROR)}"


def _met(is_met: bool) -> str:
    return "met" if is_met else "not met"


def _medians(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(median(values) for values in zip(*rows, strict=True))
