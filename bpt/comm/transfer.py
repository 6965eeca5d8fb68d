"""A collective made of messages between two."""

from __future__ import annotations

from collections.abc import Callable

from bpt.comm.base import Buffer, Request

Start = Callable[[Buffer, int], Request]


def transfer(
    rank: int, size: int, sends: dict[int, Buffer], receives: dict[int, Buffer], isend: Start, irecv: Start
) -> None:
    """Send to some ranks and receive from some; both ends of a message know its size, and leave out empty ones.

    Args:
        rank: this one.
        size: number of ranks.
        sends, receives: rank → what it gets or gives.
        isend, irecv: start a message to or from a rank.
    """
    if rank in sends and rank in receives:
        receives.pop(rank)[...] = sends.pop(rank)
    # Each rank starts with its next neighbour, so that not all send to the same one first.
    turned = [(rank + step) % size for step in range(1, size)]
    sources = [other for other in reversed(turned) if other in receives and receives[other].size]
    targets = [other for other in turned if other in sends and sends[other].size]
    requests = [irecv(receives[other], other) for other in sources]
    requests += [isend(sends[other], other) for other in targets]
    for request in requests:
        request.Wait()
