"""FlightLog: writes the content of a rank's flight recorder to a file after a failure."""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
from pathlib import Path

from bpt.base.errors import DivergedError, LostRankError, UserError
from bpt.system.comm.base import Communicator
from bpt.system.comm.connectivity import name_of
from bpt.system.events.flight_recorder import FlightRecorder
from bpt.train.runtime.rank_status import RankStatusTable


class FlightLog:
    """The file of one rank's flight recorder, beside the snapshots.

    Args:
        world: all ranks of the run.
        prefix: of snapshots.
        flight: this rank's.

    Attributes:
        flight: what is written.
        standings: where the ranks are; ``None``: it is not known.
    """

    def __init__(self, world: Communicator, prefix: str, flight: FlightRecorder) -> None:
        self.flight = flight
        self.standings: RankStatusTable | None = None
        self._rank = world.world_ranks[world.rank]
        self._name = name_of(self._rank, world.host)
        self._paths = (
            f"{prefix or 'bpt'}_flight_recorder_rank_{self._rank}.txt",
            os.path.join(tempfile.gettempdir(), f"bpt_{os.getpid()}_flight_recorder_rank_{self._rank}.txt"),
        )

    @classmethod
    def of(cls, world: Communicator, prefix: str) -> FlightLog | None:
        """Return the flight log of this rank of ``world``; ``None`` without a flight recorder."""
        flight = world.events.flight
        return cls(world, prefix, flight) if flight else None

    def failed(self, error: BaseException) -> None:
        """Write after a run has failed, unless the user caused or ended it, or it has diverged.

        Of ranks that only follow another one's loss the first says where.
        """
        is_expected = isinstance(error, (UserError, DivergedError)) or not isinstance(error, Exception)
        if self.flight.iteration < 0 or is_expected:
            return
        follows = isinstance(error, LostRankError)
        first = self.standings is None or self.standings.first == self.standings.own
        self.write(f"{type(error).__name__}: {error}", announce=first or not follows)

    def write(self, why: str, announce: bool = True) -> None:
        """Write the file; an older one is replaced.

        Args:
            why: what has failed.
            announce: say where on standard error, in one line. A file that cannot be written anywhere is not reported:
                the failure itself matters more.
        """
        if self.standings is not None:
            self.standings.put(self.flight.position)
        text = "".join(f"{line}\n" for line in self._lines(why))  # whole: this rank may be killed at any moment
        for path in self._paths:
            try:
                Path(path).write_text(text, encoding="utf-8")
            except OSError:
                continue
            if announce:
                findings = self.standings.findings()[:1] if self.standings else []
                sys.stderr.write(f"flight recorder: {'; '.join([*findings, f'wrote {path}'])}\n")
                sys.stderr.flush()
            return

    def _lines(self, why: str) -> list[str]:
        position = self.flight.position
        now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="milliseconds")
        state = "waiting in" if position.waits else "at"
        lines = [
            f"Flight recorder of {self._name}, {now}",
            f"Written because: {why}",
            f"This rank: {state} {position.words} for {position.seconds:.3g} s",
        ]
        if self.standings is not None:
            lines += ["", "All ranks, as far as this one has heard:", *self.standings.lines()]
        return [
            *lines,
            "",
            "Its last instructions and messages, in the order in which they began:",
            *self.flight.lines(),
        ]
