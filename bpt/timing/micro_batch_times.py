"""Measures how long layers take in micro-batches, as a pipeline runs them: small parts are slower for each sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bpt.execute.operator import SegmentOperator
from bpt.timing.layer_times import Times, repeat


@dataclass(frozen=True)
class PartTimes:
    """Times of a batch that has gone through the net micro-batch by micro-batch.

    Attributes:
        forward, backward: of each segment, all micro-batches together.
        update: of the solver.
    """

    forward: tuple[Times, ...]
    backward: tuple[Times, ...]
    update: Times


def time_parts(operator: SegmentOperator, iterations: int, update: Callable[[], object]) -> PartTimes:
    """Time the segments over ``iterations`` batches, after a warm-up.

    A micro-batch runs forward and at once backward. Drawing a batch is not in the times: data are read ahead.

    Args:
        operator: of one stage, with all layers; cut as times are wanted.
        update: what a solver does after backward; it must clear the gradients.
    """
    order = range(len(operator.segments))
    micros = range(operator.micro_batches)
    draw = partial(_draw, operator)
    steps: list[Callable[[], object]] = [draw]
    for micro in micros:
        steps += [partial(operator.forward, segment, micro) for segment in order]
        steps += [partial(operator.backward, segment, micro) for segment in reversed(order)]
    steps += [operator.finish, update]
    laps = repeat(steps, operator, iterations)
    count = len(order)
    forward = [_sum([laps[1 + 2 * count * micro + segment] for micro in micros]) for segment in order]
    backward = [_sum([laps[2 * count * (micro + 1) - segment] for micro in micros]) for segment in order]
    return PartTimes(tuple(forward), tuple(backward), Times(laps[-1]))


def _draw(operator: SegmentOperator) -> None:
    operator.begin(0, operator.micro_batches)
    operator.draw(0)


def _sum(laps: Sequence[Sequence[float]]) -> Times:
    """Of what several steps took in each repetition."""
    return Times(tuple(map(sum, zip(*laps, strict=True))))
