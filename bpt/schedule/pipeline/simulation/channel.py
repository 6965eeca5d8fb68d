"""Messages between stages: channels, in which they keep their order, and links, on which they take their time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bpt.schedule.instructions import Instruction, Recv, Send


class Channel(NamedTuple):
    """What a communicator tells messages apart by, besides the ranks: the flow, and whether it is the diff."""

    flow: int
    diff: bool


class Message(NamedTuple):
    """A message that is there at ``arrival`` (seconds)."""

    send: Send
    arrival: float


def channel_of(message: Send | Recv) -> Channel:
    return Channel(message.transfer, message.diff)


class Network:
    """All messages under way.

    A message starts when it is sent and the one before it on its link has passed; each pair of stages has a link in
    each direction. A channel is first in, first out, as a communicator's messages of one tag are.
    """

    def __init__(self, streams: Sequence[Sequence[Instruction]]) -> None:
        self._readers = _ends(streams, Recv)
        writers = _ends(streams, Send)
        for channel in self._readers.keys() & writers.keys():
            assert self._readers[channel] != writers[channel], f"stage {writers[channel]} sends {channel} to itself"
        self._free: defaultdict[tuple[int, int | None], float] = defaultdict(float)
        self._queues: defaultdict[Channel, deque[Message]] = defaultdict(deque)

    def reader(self, send: Send) -> int | None:
        """The stage that receives such messages; ``None``: none does."""
        return self._readers.get(channel_of(send))

    def send(self, stage: int, send: Send, now: float, seconds: float) -> tuple[float, float]:
        """``stage`` sends a message that takes ``seconds``; when it starts and when it is there."""
        link = stage, self.reader(send)
        start = max(now, self._free[link])
        end = self._free[link] = start + seconds
        self._queues[channel_of(send)].append(Message(send, end))
        return start, end

    def receive(self, recv: Recv) -> float | None:
        """When the message is there; ``None``: it is not the next one of its channel, or not sent yet."""
        queue = self._queues[channel_of(recv)]
        if not queue or queue[0].send.micro != recv.micro:
            return None
        return queue.popleft().arrival

    def next(self, recv: Recv) -> Send | None:
        """What has been sent and would have to be received first."""
        queue = self._queues[channel_of(recv)]
        return queue[0].send if queue else None

    def left(self) -> Iterable[Send]:
        """What has been sent and not received."""
        return (message.send for channel in sorted(self._queues) for message in self._queues[channel])


def _ends(streams: Sequence[Sequence[Instruction]], kind: type[Send] | type[Recv]) -> dict[Channel, int]:
    """The stage at this end of each channel."""
    ends: dict[Channel, int] = {}
    for stage, stream in enumerate(streams):
        for instruction in stream:
            if isinstance(instruction, kind):
                end = ends.setdefault(channel_of(instruction), stage)
                assert end == stage, f"stages {end} and {stage} are at the same end of {channel_of(instruction)}"
    return ends
