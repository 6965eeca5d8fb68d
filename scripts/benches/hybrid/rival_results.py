"""What became of the rivals of ``scripts/bench hybrid --rivals``, in rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bpt.base.log import columns
from scripts.benches.hybrid.rival_points import RivalPoint
from scripts.benches.hybrid.rival_ways import Rival


@dataclass(frozen=True)
class Trained:
    """What became of a rival.

    Attributes:
        points: of the first round.
        steps: seconds of an iteration, one a round.
    """

    rival: Rival
    points: Sequence[RivalPoint]
    steps: Sequence[float]

    @property
    def step(self) -> float:
        """Seconds of an iteration: the median over the rounds."""
        return median(self.steps)

    @property
    def seconds(self) -> float:
        """Of all iterations: TT of the paper's Table 3, tests left out."""
        return self.step * self.points[-1][0]


def step_of(points: Sequence[RivalPoint]) -> float:
    """Seconds of an iteration, without those before the first test, in which caches and pipelines fill."""
    first, last = points[0], points[-1]
    if len(points) == 1:
        return last[1] / last[0]
    return (last[1] - first[1]) / (last[0] - first[0])


HEAD = ("way", "ranks", "iterations", "step_seconds", "speedup", "training_seconds", "loss", "accuracy")
CURVES = ("way", "ranks", "iteration", "seconds", "loss", "accuracy")


def rows(found: Sequence[Trained]) -> Iterator[tuple[object, ...]]:
    """In the columns of HEAD."""
    one = found[0]
    for trained in found:
        iteration, _, loss, accuracy = trained.points[-1]
        yield (
            trained.rival.name, trained.rival.ranks, iteration, trained.step, one.step / trained.step,
            trained.seconds, loss, accuracy,
        )  # fmt: skip


def curves(found: Sequence[Trained]) -> Iterator[tuple[object, ...]]:
    """In the columns of CURVES."""
    for trained in found:
        for point in trained.points:
            yield trained.rival.name, trained.rival.ranks, *point


def table(found: Sequence[Trained]) -> Iterator[str]:
    """The rows in short."""
    lines = [["way", "ranks", "step ms", "speed-up", "training s", "loss", "accuracy"]]
    for name, ranks, _, step, speedup, seconds, loss, accuracy in rows(found):
        lines.append(
            [str(name), str(ranks), f"{_float(step) * 1e3:.1f}", f"{_float(speedup):.2f}", f"{_float(seconds):.1f}",
             f"{_float(loss):.4f}", f"{_float(accuracy):.1%}"]
        )  # fmt: skip
    yield from columns(lines, left=1)


def _float(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)
