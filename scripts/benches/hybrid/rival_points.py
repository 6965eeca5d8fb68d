"""The curve of a rival of ``scripts/bench hybrid --rivals``, by bpt or by PyTorch."""

from __future__ import annotations

RivalPoint = tuple[int, float, float, float]
"""Iterations so far, seconds of training so far, the mean loss since the point before, accuracy of a test."""


def segments(iterations: int, every: int) -> list[tuple[int, int]]:
    """What is trained between two tests: ``[first, last)``; the last may be cut short.

    All ranks begin and end a segment together, and its time is that of the slowest one.
    """
    return [(first, min(first + every, iterations)) for first in range(0, iterations, every)]
