"""Chrome's trace format: JSON for chrome://tracing and ui.perfetto.dev.

Source: "Trace Event Format", Google.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO

from bpt.perf.trace.recorder import KINDS, TraceSpan


class ChromeTrace:
    """Writes a trace line by line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._separator = ""
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [')

    def process(self, rank: int, name: str, label: str) -> None:
        """Write a rank; viewers show ``label`` after its name."""
        self._event(ph="M", pid=rank, tid=0, name="process_name", args={"name": name})
        self._event(ph="M", pid=rank, tid=0, name="process_labels", args={"labels": label})
        self._event(ph="M", pid=rank, tid=0, name="process_sort_index", args={"sort_index": rank})

    def track(self, rank: int, number: int, name: str, kind: str) -> None:
        """Write a track of a rank; its number is 1 or more."""
        order = 1000 * KINDS.index(kind) + number
        self._event(ph="M", pid=rank, tid=number, name="thread_name", args={"name": name})
        self._event(ph="M", pid=rank, tid=number, name="thread_sort_index", args={"sort_index": order})

    def span(self, rank: int, track: int, span: TraceSpan, start: int, end: int) -> None:
        """Write a span of a track; times are nanoseconds since the trace began."""
        place = {"pid": rank, "tid": track}
        self._event(
            ph="X", name=span.name, cat=span.kind, ts=start / 1e3, dur=(end - start) / 1e3, **place, args=span.details
        )
        if span.flow:
            # A flow begins within the span that sends, and ends within the span in which the message arrives.
            last = max(start, end - 1) / 1e3
            when = {"ph": "s", "ts": start / 1e3} if span.flow > 0 else {"ph": "f", "bp": "e", "ts": last}
            self._event(name="message", cat="message", id=hex(abs(span.flow)), **when, **place)

    def close(self, about: Mapping[str, object]) -> None:
        """Write the end of the file, with information ``about`` the trace."""
        self._file.write(b'\n], "otherData": ' + json.dumps(about, ensure_ascii=False).encode() + b"}\n")

    def _event(self, **fields: object) -> None:
        line = json.dumps(fields, ensure_ascii=False)
        self._file.write(f"{self._separator}\n{line}".encode())
        self._separator = ","
