"""Measures the times of layers in micro-batches, as a pipeline runs them; small ones take longer for each sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bpt.engine.instructions import Backward, Forward, LoadBatch
from bpt.engine.operator import Operator
from bpt.perf.timing.layer_times import RepetitionTimes, one_stage, repeat


@dataclass(frozen=True)
class PartTimes:
    """The times of a batch that passes through the net in micro-batches.

    Attributes:
        forward, backward: the times of each segment for all micro-batches together.
        update: the times of the solver's update.
    """

    forward: tuple[RepetitionTimes, ...]
    backward: tuple[RepetitionTimes, ...]
    update: RepetitionTimes


def time_parts(operator: Operator, iterations: int, update: Callable[[], object]) -> PartTimes:
    """Time the segments over ``iterations`` batches, after a warm-up.

    The times do not include loading a batch, because training prefetches data.

    Args:
        operator: a single stage with all layers, cut into the segments to time.
        update: the solver's update after backward, which must clear the gradients.
    """
    steps = one_stage(operator)
    runs = [
        partial(operator.backward if isinstance(step, Backward) else operator.forward, step.segment, step.micro)
        for step in steps
    ]
    _, *laps, _, update_laps = repeat(
        [partial(_draw, operator), *runs, operator.batches.finish, update], operator, iterations
    )

    def of(kind: type[Forward] | type[Backward]) -> tuple[RepetitionTimes, ...]:
        taken = list(zip(steps, laps, strict=True))
        return tuple(
            _sum([lap for step, lap in taken if isinstance(step, kind) and step.segment == segment])
            for segment in range(len(operator.segments))
        )

    return PartTimes(of(Forward), of(Backward), RepetitionTimes(update_laps))


def _draw(operator: Operator) -> None:
    operator.batches.begin(0, operator.micro_batches)
    operator.batches.load_batch(LoadBatch(0))


def _sum(laps: Sequence[Sequence[float]]) -> RepetitionTimes:
    """Return the sum of several steps for each repetition."""
    return RepetitionTimes(tuple(map(sum, zip(*laps, strict=True))))
