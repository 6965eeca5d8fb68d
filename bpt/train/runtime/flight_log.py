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
        prefix: the prefix of snapshots.
        flight: this rank's flight recorder.

    Attributes:
        flight: the recorder whose content is written.
        standings: the positions of all ranks; ``None``: they are unknown.
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
        """Return the flight log of this rank of ``world``, or ``None`` without a flight recorder."""
        flight = world.events.flight
        return cls(world, prefix, flight) if flight else None

    def failed(self, error: BaseException) -> None:
        """Write the file after a run has failed, unless the user caused or ended this, or the run has diverged.

        Of the ranks that fail only because another rank was lost, the first one reports the file.
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
            why: the failure.
            announce: whether to report the path in one line on standard error. If the file cannot be written anywhere,
                that is not reported, because the failure itself is more important.
        """
        if self.standings is not None:
            self.standings.put(self.flight.position)
        text = "".join(f"{line}\n" for line in self._lines(why))  # one write: this rank may be killed any time
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
