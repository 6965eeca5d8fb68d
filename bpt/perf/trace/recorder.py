"""Records a rank's events in a temporary file while it trains."""

from __future__ import annotations

import logging
import marshal
import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

from bpt.system.events.event import Activity, Event

LOG = logging.getLogger("bpt")

LIMIT = 5_000_000  # spans of a rank, about half a gigabyte on disk
BUNCH = 2048  # spans in memory
_FORMAT = 4  # version of marshal's format, which any Python since 3.4 reads

# The kinds of tracks, in the order in which viewers list them. Each thread has one track of each kind.
COMPUTE, WITHIN, EXCHANGE, MESSAGES, DATA, DISK = "compute", "within compute", "exchange", "messages", "data", "disk"
KINDS = (COMPUTE, WITHIN, EXCHANGE, MESSAGES, DATA, DISK)

_OWN_TRACK = {Activity.WAIT_FOR_DATA: DATA, Activity.MAKE_BATCH: DATA, Activity.WRITE: DISK}
_EXCHANGE = ("exchange", "broadcast")  # phases
Argument = str | int


class TraceSpan(NamedTuple):
    """One bar of a trace.

    Attributes:
        kind: the kind of its track.
        thread: the thread of its track; bars of one track are side by side or nested.
        name: its label.
        start, end: seconds of the rank's ``time.perf_counter``.
        details: values that viewers show with it, by name.
        flow: the flow of its message (see Event).
    """

    kind: str
    thread: str
    name: str
    start: float
    end: float
    details: dict[str, Argument]
    flow: int = 0


class Recorder:
    """A sink that records a span for each event, up to LIMIT spans, in bounded memory.

    Attributes:
        recorded, dropped: the number of recorded spans, and of those that the file did not take.
    """

    def __init__(self) -> None:
        self.recorded = self.dropped = 0
        self._bunch: list[Event] = []
        self._length = 0  # bytes of whole bunches in the file
        self._full = False
        self._file = tempfile.TemporaryFile(prefix="bpt-trace-")  # noqa: SIM115, see close
        self._raw = self._file.raw  # a buffer would hide failed writes

    def __call__(self, event: Event) -> None:
        """Record an event."""
        if self._full:
            self.dropped += 1
            return
        if self.recorded >= LIMIT:
            self._end(f"it has {LIMIT} events of this rank, which is the limit; trace a shorter run", 1)
            return
        self.recorded += 1
        self._bunch.append(event)
        if len(self._bunch) >= BUNCH:
            self._write()

    def finish(self) -> tuple[IO[bytes], int]:
        """Return the file, at its start, and its length in bytes, for ``read``; no event may follow."""
        self._write()
        self._file.seek(0)
        return self._file, self._length

    def _write(self) -> None:
        bunch, self._bunch = self._bunch, []
        content = memoryview(marshal.dumps([tuple(span_of(event)) for event in bunch], _FORMAT))
        length = len(content)
        try:
            while content:
                content = content[self._raw.write(content) :]
        except OSError as error:  # the run continues without its trace
            self.recorded -= len(bunch)
            self._end(f"it ends here: {error.strerror}", len(bunch))
        else:
            self._length += length

    def _end(self, why: str, dropped: int) -> None:
        if not self._full:
            LOG.warning("Trace: %s", why)
        self._full = True
        self.dropped += dropped

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


def read(file: IO[bytes], length: int) -> Iterator[TraceSpan]:
    """Yield the spans in the first ``length`` bytes of a recorder's file, in the order in which they ended."""
    while file.tell() < length:
        for fields in marshal.load(file):
            yield TraceSpan(*fields)


def span_of(event: Event) -> TraceSpan:
    """Return the span that shows ``event``."""
    show = _call if event.method else _itself
    kind, name, details = show(event)
    if event.layers:
        details["layers"] = event.layers
    return TraceSpan(kind, event.thread, name, event.start, event.end, details, event.flow)


def _itself(event: Event) -> tuple[str, str, dict[str, Argument]]:
    """Return the track, name and details of an instruction or activity."""
    assert event.what is not None
    kind = COMPUTE if event.within is None else WITHIN
    if isinstance(event.what, Activity):
        kind = _OWN_TRACK.get(event.what, kind)
    return kind, str(event.what), {} if event.within is None else {"in": str(event.within)}


def _call(event: Event) -> tuple[str, str, dict[str, Argument]]:
    """Return the track, name and details of a call."""
    kind = EXCHANGE if event.what is not None and event.what.phase in _EXCHANGE else MESSAGES
    found: dict[str, Argument | None] = {
        "for": None if event.what is None else str(event.what),
        "parameters": event.message,
        "peer": event.peer,
        "bytes sent": event.sent or None,
        "bytes received": event.received or None,
        "dtype": None if event.dtype is None else str(event.dtype),
    }
    name = event.method if event.calls else f"{event.method}, wait"
    return kind, name, {label: value for label, value in found.items() if value is not None and value != ""}
