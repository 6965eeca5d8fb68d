"""PieceExchange: the blobs of a piece of the batch travel while split layers run on the piece before.

A communication thread exchanges the pieces in one order on all ranks: the bottom of piece k + 1 follows the top of
piece k - 1. With one piece there is nothing to overlap, and the caller exchanges it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from bpt.engine.instructions import ExchangePiece
from bpt.graph.share import Share
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class PieceExchange:
    """Exchanges the blobs of split layers, piece by piece.

    Args:
        shards: the ranks that hold slices of the same layers.
        pieces: the number of pieces into which a pass cuts shares; a collective call if there are several.

    Attributes:
        comm: the communicator of the exchanges.
    """

    def __init__(self, shards: Communicator, pieces: int = 1) -> None:
        self.comm = shards.Dup() if pieces > 1 else shards
        self._pieces = pieces
        self._thread = CommThread(self.comm) if pieces > 1 else None

    def cut(self, shares: Sequence[Share]) -> list[list[Share]]:
        """Return the parts of ``shares`` that each piece has; no piece is empty, unless all shares are."""
        count = max(1, min(self._pieces, max(share.count for share in shares)))
        return [[share.part(piece, count) for share in shares] for piece in range(count)]

    def run(
        self,
        what: ExchangePiece,
        count: int,
        arrive: Callable[[int], Callable[[], A]],
        compute: Callable[[int, A], B],
        leave: Callable[[int, B], Callable[[], C]],
    ) -> list[Callable[[], C]]:
        """Compute all pieces; return a function for each that waits for what ``leave`` has exchanged.

        Args:
            what: the instruction to which the calls belong.
            count: the number of pieces.
            arrive: packs what a piece needs, and returns its exchange.
            compute: runs the layers on what has arrived.
            leave: packs the result, and returns its exchange.
        """
        ahead, left = self._start(arrive(0), what), []
        for piece in range(count):
            arrived = ahead
            if piece + 1 < count:
                ahead = self._start(arrive(piece + 1), what)
            left.append(self._start(leave(piece, compute(piece, arrived())), what))
        return left

    def _start(self, exchange: Callable[[], A], what: ExchangePiece) -> Callable[[], A]:
        """Start an exchange; return a function that waits for it and returns what has arrived."""
        if self._thread is None:
            arrived = exchange()
            return lambda: arrived
        thread = self._thread
        found: list[A] = []
        mark = thread.submit(lambda: found.append(exchange()), what)

        def wait() -> A:
            with self.comm.events.call("Piece", 0, 0, calls=0):
                thread.wait(mark)
            return found[0]

        return wait

    def close(self, failed: bool = False) -> None:
        """End the thread and free its communicator; a collective call, unless something ``failed``."""
        if self._thread is not None:
            self._thread.close()
            if not failed:
                self.comm.Free()
