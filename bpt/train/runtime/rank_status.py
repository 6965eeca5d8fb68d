"""RankStatusTable: the known positions of all ranks, and the ranks that delay others.

Each rank stores its own position, and sends the table to others; of two tables the newer row of each rank counts. So a
row travels from rank to rank, and its age grows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np

from bpt.system.comm.base import Buffer
from bpt.system.events.flight_recorder import Position

_ROW = np.dtype(
    [
        ("beat", np.int64),  # how many its rank has sent; 0: nothing was ever heard
        ("age", np.float64),  # seconds since then, at most
        ("gone", np.int8),  # the rank has ended: 1; is lost: 2
        ("iteration", np.int64),
        ("number", np.int64),
        ("waits", np.int8),
        ("peer", np.int32),
        ("seconds", np.float64),
        ("words", "S112"),
    ]
)  # the fields are as in Position
_ENDED, _LOST = 1, 2


class RankStatusTable:
    """A table with one row for each rank.

    Args:
        names: readable names of all ranks.
        ranks: their numbers in the job.
        own: this rank's index.
        lanes: the lane of each rank: ranks of one lane, such as a stage, begin the same instructions; below 0: spares.
    """

    def __init__(self, names: Sequence[str], ranks: Sequence[int], own: int, lanes: Sequence[int]) -> None:
        self.names = names
        self.own = own
        self._ranks = list(ranks)
        self._lanes = lanes
        self._rows = np.zeros(len(names), _ROW)
        self._heard = time.monotonic()

    @property
    def nbytes(self) -> int:
        """The bytes of a message."""
        return self._rows.nbytes

    def put(self, position: Position) -> None:
        """Store this rank's own current position."""
        self._grow_older()
        row = self._rows[self.own]
        row["beat"] += 1
        row["age"] = 0.0
        for field in ("iteration", "number", "waits", "peer", "seconds"):
            row[field] = getattr(position, field)
        row["peer"] = self._ranks.index(position.peer) if position.peer in self._ranks else -1
        row["words"] = position.words.encode()[:112]

    def leave(self, rank: int, lost: bool = False) -> None:
        """Record that a rank has ended, or is lost."""
        self._rows[rank]["gone"] = _LOST if lost else _ENDED

    def message(self) -> Buffer:
        """Return the table as a message."""
        self._grow_older()
        found: Buffer = self._rows.copy().view(np.uint8)
        return found

    def take(self, message: Buffer, sender: int, since: float = 0.0) -> bool:
        """Merge another rank's message; return whether that rank will send more.

        Args:
            since: largest number of seconds since the message's arrival.
        """
        self._grow_older()
        theirs = message.view(_ROW)
        theirs["age"] += since
        gone = np.maximum(self._rows["gone"], theirs["gone"])
        gone[self.own] = self._rows["gone"][self.own]  # this rank knows its own state best
        newer = theirs["beat"] > self._rows["beat"]
        self._rows[newer] = theirs[newer]
        self._rows["gone"] = gone
        return not theirs["gone"][sender]

    def _grow_older(self) -> None:
        now = time.monotonic()
        self._rows["age"] += now - self._heard
        self._heard = now

    def is_gone(self, rank: int) -> bool:
        """Return whether the rank has ended, or is lost."""
        return bool(self._rows[rank]["gone"])

    @property
    def lost_spares(self) -> list[int]:
        """The spare ranks that are lost."""
        return [rank for rank, lane in enumerate(self._lanes) if lane < 0 and self._rows[rank]["gone"] == _LOST]

    @property
    def first(self) -> int:
        """The first rank that is not known to have ended."""
        return next((rank for rank in range(len(self._rows)) if not self.is_gone(rank)), self.own)

    @property
    def first_not_lost(self) -> int:
        """The first rank that is not lost, which reports for all."""
        return next((rank for rank, gone in enumerate(self._rows["gone"]) if gone != _LOST), self.own)

    def words(self, rank: int) -> str:
        """Return the last known position of a rank in words."""
        return bytes(self._rows[rank]["words"]).decode(errors="replace") if self._rows[rank]["beat"] else "its start"

    def all_wait(self, seconds: float) -> bool:
        """Return whether all ranks have waited for ``seconds``, by messages that are at most half as old."""
        here = self._rows[self._rows["gone"] == 0]
        return bool(
            len(here)
            and here["waits"].all()
            and (here["seconds"] >= seconds).all()
            and (here["age"] < seconds / 2).all()
        )

    @property
    def pair(self) -> tuple[int, int] | None:
        """Two ranks that wait only for each other, between which messages do not arrive."""
        peers = self._rows["peer"]
        found = [
            (rank, int(peer))
            for rank, peer in enumerate(peers)
            if peer > rank and peers[peer] == rank and self._rows[rank]["waits"] and self._rows[peer]["waits"]
        ]
        return found[0] if found else None

    def lines(self) -> Iterator[str]:
        """Yield the known state of each rank, and then the conclusions."""
        self._grow_older()
        for rank, row in enumerate(self._rows):
            if not row["beat"]:
                yield f"{self.names[rank]}: nothing was heard of it"
                continue
            heard = "" if rank == self.own else f"; heard of {row['age']:.3g} s ago"
            gone = "; it has ended, or is lost" if row["gone"] else ""
            yield f"{self.names[rank]}: {self._state(rank)} for {row['seconds']:.3g} s{heard}{gone}"
        yield ""
        yield from self.findings()

    def findings(self) -> list[str]:
        """Return the ranks that delay others in words, the most significant first."""
        return [*self._behind(), *self._awaited(), *self._together()] or ["no rank holds up another, as far as known"]

    def _behind(self) -> Iterator[str]:
        """Yield ranks that are silent since others wait, or have not entered a call in which others of their lane wait.

        The rank that was silent longest comes first, then the rank that is farthest behind.
        """
        heard = [rank for rank in range(len(self._rows)) if self._rows[rank]["beat"]]
        waiting = [rank for rank in heard if self._rows[rank]["waits"] and not self.is_gone(rank)]
        silent, late = list[tuple[float, str]](), list[tuple[tuple[int, int], str]]()
        for rank in range(len(self._rows)):
            mates = [other for other in waiting if self._lanes[other] == self._lanes[rank]] or waiting
            if not mates:
                continue
            row = self._rows[rank]
            most = max(mates, key=lambda mate: (self._progress(mate), self._rows[mate]["seconds"]))
            name, where = self.names[rank], self.words(most)
            if not row["beat"] or row["age"] > self._rows[most]["seconds"]:
                last = f"{row['age']:.3g} s ago it was {self._state(rank)}" if row["beat"] else "it never was"
                age = float(row["age"]) if row["beat"] else math.inf
                silent.append((-age, f"{name} was not heard of since {self.names[most]} waits in {where}: {last}"))
            elif self._lanes[most] == self._lanes[rank] and self._progress(rank) < self._progress(most):
                line = f"{name} never entered {where}, where {self.names[most]} waits: it is {self._state(rank)}"
                late.append((self._progress(rank), line))
        yield from (line for _, line in sorted(silent, key=itemgetter(0)))
        yield from (line for _, line in sorted(late, key=itemgetter(0)))

    def _awaited(self) -> Iterator[str]:
        """Yield the ranks for which a single rank waits explicitly."""
        for rank, row in enumerate(self._rows):
            peer = int(row["peer"])
            if row["beat"] and row["waits"] and peer >= 0:
                yield (
                    f"{self.names[rank]} waits for {self.names[peer]} in {self.words(rank)}; that one is "
                    f"{self._state(peer)}"
                )

    def _together(self) -> Iterator[str]:
        """Yield the calls in which all ranks of a lane wait, although all have entered them."""
        for lane in sorted({lane for lane in self._lanes if lane >= 0}):
            members = [rank for rank, of in enumerate(self._lanes) if of == lane and not self.is_gone(rank)]
            rows = self._rows[members]
            if len(members) > 1 and rows["waits"].all() and (rows["peer"] < 0).all() and len(set(rows["words"])) == 1:
                names = ", ".join(self.names[rank] for rank in members)
                yield f"{names} all wait in {self.words(members[0])}: no message gets through between some of them"

    def _state(self, rank: int) -> str:
        return f"{'waiting in' if self._rows[rank]['waits'] else 'at'} {self.words(rank)}"

    def _progress(self, rank: int) -> tuple[int, int]:
        return int(self._rows[rank]["iteration"]), int(self._rows[rank]["number"])
