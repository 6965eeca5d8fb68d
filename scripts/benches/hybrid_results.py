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
    def computing(self) -> list[float]:
        """Of each rank."""
        return [median(times) for times in zip(*(turn.computing for turn in self.turns), strict=True)]


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


HEAD = (
    f"{'net':<13} {'schedule':<12} {'placement':<8} {'stage 1 from':<14} {'predicted':>9} {'measured':>9} {'error':>7} "
    f"{'computing: predicted':>21} {'measured':>15}"
)


def table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Milliseconds of an iteration, predicted and measured, and the gains."""
    yield HEAD
    for found in comparisons:
        for name, side in (("even", found.even), ("planned", found.planned)):
            busy, computing = (
                " / ".join(f"{value * 1e3:.0f}" for value in values) for values in (side.busy, side.seen.computing)
            )
            net, schedule = (found.net, found.schedule) if name == "even" else ("", "")
            yield (
                f"{net:<13} {schedule:<12} {name:<8} {side.first:<14} {side.predicted * 1e3:>9.1f} "
                f"{side.seen.seconds * 1e3:>9.1f} {side.error:>+7.1%} {busy:>21} {computing:>15}"
            )
        yield (
            f"{'':<26} gain: predicted {found.predicted:.3f}, measured {found.measured:.3f}; "
            f"achieved / predicted {found.achieved:.1%}"
        )


def verdict(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Whether the goals are met."""
    least = min(found.achieved for found in comparisons)
    worst = max((side.error for found in comparisons for side in (found.even, found.planned)), key=abs)
    yield f"least achieved / predicted gain {least:.1%}, goal {GAIN:.0%}: {_met(least >= GAIN)}"
    yield f"worst error of a prediction {worst:+.1%}, goal {ERROR:.0%}: {_met(abs(worst) <= ERROR)}"


def _met(is_met: bool) -> str:
    return "met" if is_met else "not met"
