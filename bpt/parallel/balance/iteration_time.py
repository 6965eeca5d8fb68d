"""The time of an iteration as a function of one rank's samples, with the exchange that its backward pass hides.

The gradients of a segment travel when the slowest rank has them, one segment after the other. The iteration ends when
the last of them has arrived: at the latest of r(s) + l(s), where r(s) is the moment at which all ranks have the
gradients of segment s, and l(s) the seconds of its exchange and of all later ones. r(s) is the latest of r_p(s, x_p)
over the ranks p with x_p samples. So the iteration takes the largest of all T_p(x_p) = max over s of r_p(s, x_p) +
l(s). Each of these depends on one rank's samples only and never falls, so ``fastest`` finds the best shares by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from bpt.engine import instructions as do
from bpt.engine.instructions import InstructionStep
from bpt.parallel.balance.speed import SpeedFunction
from bpt.system.events.totals import Key, Traffic

TINY = 1e-9  # seconds of what takes no measurable time


@dataclass(frozen=True)
class IterationFunction:
    """The least seconds of an iteration by the samples of one rank: T_p(x) and the rank's update.

    Attributes:
        ready: seconds until the rank has the gradients of each segment, in the order of their exchange, and until it
            has computed all.
        left: seconds from the start of each exchange until the end of the last one; 0 for the last of ``ready``.
        update: seconds of the rank's update, whatever its samples.
        cap: the largest batch that fits into memory; ``None``: no limit.
    """

    ready: tuple[SpeedFunction, ...]
    left: tuple[float, ...]
    update: float = 0.0
    cap: int | None = None

    @classmethod
    def fitted(
        cls, points: Mapping[int, Sequence[float]], left: tuple[float, ...], cap: int | None = None
    ) -> IterationFunction:
        """Return the function nearest to measured points: size → seconds of each of ``ready``, and of the update."""
        ready = tuple(
            SpeedFunction.fitted((size, max(seconds[part], TINY)) for size, seconds in points.items())
            for part in range(len(left))
        )
        return cls(ready, left, fmean(seconds[-1] for seconds in points.values()), cap)

    def seconds(self, size: int) -> float:
        """Return the seconds of an iteration in which the rank has ``size`` samples."""
        return self.update + max(ready.seconds(size) + left for ready, left in zip(self.ready, self.left, strict=True))


def seconds_left(exchanges: Sequence[float]) -> tuple[float, ...]:
    """Return ``left`` of an IterationFunction, from the seconds of each segment's exchange, in their order."""
    return (*list(accumulate(reversed(exchanges)))[::-1], 0.0)


def ready_seconds(totals: Mapping[Key, Traffic], segments: int, passes: int) -> tuple[list[float], float]:
    """Return the seconds until each of ``ready`` of an IterationFunction, and those of the update, without waiting.

    Args:
        totals: the times of an iteration on a rank.
        segments: the number of the net's segments; the last one is exchanged first.
        passes: the passes of an iteration, the last of which exchanges gradients.
    """
    forward = sum(_busy(totals, InstructionStep(do.Forward, segment)) for segment in range(segments))
    backward = [_busy(totals, InstructionStep(do.Backward, segment)) for segment in reversed(range(segments))]
    all_before = forward + sum(backward) * (1 - 1 / passes)
    ready = [all_before + part for part in accumulate(each / passes for each in backward)]
    return [*ready, ready[-1]], _busy(totals, InstructionStep(do.UpdateWeights))


def _busy(totals: Mapping[Key, Traffic], step: InstructionStep) -> float:
    """Return the seconds of an instruction without its calls to other ranks."""
    calls = sum(total.seconds for key, total in totals.items() if key.step == step and key.method)
    return totals.get(Key(step), Traffic()).seconds - calls


def exchange_seconds(totals: Mapping[Key, Traffic], segments: int) -> list[float]:
    """Return the seconds of a rank's calls in the exchange of each segment, in their order.

    The rank that comes last waits for nobody, so the least of all ranks is the exchange itself.
    """
    found = [0.0] * segments
    for key, total in totals.items():
        if key.method and isinstance(key.step, InstructionStep) and key.step.kind is do.ExchangeGradients:
            assert key.step.number is not None
            found[segments - 1 - key.step.number] += total.seconds
    return found
