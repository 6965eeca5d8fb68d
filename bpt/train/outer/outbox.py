"""Outbox: messages to other ranks that are under way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from bpt.base.errors import LostRankError
from bpt.data.sample_partition import Run
from bpt.data.shipped import RecordStream
from bpt.system.comm.base import Buffer, Communicator, Request
from bpt.system.events.event import Activity


class Outbox:
    """Messages to other ranks that are under way, with their buffers, which must stay until they have been sent."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._sent: list[tuple[Request, Buffer]] = []

    def __len__(self) -> int:
        return len(self._sent)

    def send(self, activity: Activity, buffer: Buffer, rank: int, tag: int) -> None:
        """Send a message without waiting."""
        with self._comm.events.part_of(activity):
            self._sent.append((self._comm.Isend(buffer, rank, tag), buffer))

    def clean(self, ignores_lost: bool = False) -> None:
        """Drop the messages that have been sent.

        Args:
            ignores_lost: whether messages to lost ranks are dropped, too.

        Raises:
            LostRankError: a receiver was lost, unless ``ignores_lost``.
        """
        self._sent = [each for each in self._sent if not (_is_over(each[0]) if ignores_lost else each[0].Test())]

    def wait(self, ignores_lost: bool = False) -> None:
        """Wait until all messages have been sent."""
        for request, _ in self._sent:
            with suppress(*([LostRankError] if ignores_lost else [])):
                request.Wait()
        self.clear()

    def clear(self) -> None:
        """Drop all messages."""
        self._sent.clear()


class RecordSender:
    """Sends the records of a worker's samples in chunks, one after the other.

    Args:
        outbox: sends the chunks.
        streams: the records of each data layer.
        tags: the tags of sizes, tables and contents.
    """

    def __init__(self, outbox: Outbox, rank: int, streams: Sequence[RecordStream], tags: tuple[int, int, int]) -> None:
        self._outbox = outbox
        self._rank = rank
        self._streams = streams
        self._tags = tags
        self._pieces: Iterator[Sequence[Buffer]] = iter(())
        self.is_sending = False

    def begin(self, runs: Sequence[Run]) -> None:
        """Begin to send the records of ``runs``."""
        self._pieces, self.is_sending = self._records(runs), bool(self._streams)

    def advance(self) -> None:
        """Send the next chunk, if no message is under way."""
        if not self.is_sending or len(self._outbox):
            return
        piece = next(self._pieces, None)
        if piece is None:
            self.is_sending = False
            return
        for buffer, tag in zip(piece, self._tags, strict=False):
            self._outbox.send(Activity.RECORDS, buffer, self._rank, tag)

    def _records(self, runs: Sequence[Run]) -> Iterator[Sequence[Buffer]]:
        """Yield chunks of records with their sizes, layer by layer; sizes of 0 end a layer."""
        for stream in self._streams:
            for table, content in stream.pieces(runs):
                yield np.array([len(table), len(content)]), table, content
            yield (np.zeros(2, np.int64),)


def _is_over(request: Request) -> bool:
    """Return whether a message has been sent, or never will be."""
    try:
        return request.Test()
    except LostRankError:
        return True
