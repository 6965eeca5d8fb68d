"""The schedule of one process: forward through all segments, backward through all, update.

::

    iter_size 1, 3 segments    F0 F1 F2 B2 B1 B0 U
    iter_size 2, 1 segment     F0 B0 F0 B0 U
"""

from __future__ import annotations

from collections.abc import Iterator

from bpt.schedule.instructions import Backward, Forward, Instruction, Update


def sequential(segments: int, iter_size: int = 1) -> Iterator[Instruction]:
    """Yield the instructions of one training iteration.

    Args:
        segments: number of segments of the net.
        iter_size: passes whose gradients add up before the update (the solver's field of this name).
    """
    for _ in range(iter_size):
        yield from map(Forward, range(segments))
        yield from map(Backward, reversed(range(segments)))
    yield Update()
