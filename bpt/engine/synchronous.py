"""The schedule of synchronous training: forward through all segments, backward through all, exchange, update.

The gradients of a segment are exchanged while the segments before it still run backward. ::

    3 segments                 F0 F1 F2 B2 X2 B1 X1 B0 X0 W U
    iter_size 2, 1 segment     F0 B0 F0 B0 X0 W U
    broadcast, 2 segments      C F0 F1 B1 X1 B0 X0 W U
    no overlap, 2 segments     F0 F1 B1 B0 X1 X0 W U
    joined, 2 segments         F0 P1 X1 B0 X0 W U

One process runs the same; its exchange has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from bpt.engine.instructions import (
    Backward,
    Broadcast,
    ExchangeGradients,
    Forward,
    ForwardBackward,
    Instruction,
    UpdateWeights,
    Wait,
)


def synchronous(
    segments: int, iter_size: int = 1, broadcast: bool = False, overlap: bool = True, joined: bool = False
) -> Iterator[Instruction]:
    """Yield the instructions of one training iteration.

    Args:
        segments: number of segments of the net.
        iter_size: passes whose gradients add up before the update (the solver's field of this name).
        broadcast: weights are updated on one rank, and the others get them at the start of the iteration.
        overlap: a segment's gradients are exchanged while the segments before it run backward, and not after them all.
        joined: the last segment runs forward and backward in one instruction.
    """
    if broadcast:
        yield Broadcast()
    for number in range(iter_size):
        yield from map(Forward, range(segments - joined))
        for segment in reversed(range(segments)):
            yield ForwardBackward(segment) if joined and segment == segments - 1 else Backward(segment)
            if overlap and number == iter_size - 1:
                yield ExchangeGradients(segment)
    if not overlap:
        yield from map(ExchangeGradients, reversed(range(segments)))
    yield Wait()
    yield UpdateWeights()
