"""What is kept of events, and what is said of those that are not."""

from __future__ import annotations

import errno
import logging
import os
from typing import Any

import numpy as np
import pytest

from bpt.engine.instructions import Backward, ExchangeGradients, Forward, Send
from bpt.perf.trace import recorder as module
from bpt.perf.trace.recorder import COMPUTE, DATA, DISK, EXCHANGE, MESSAGES, WITHIN, Recorder, TraceSpan, read, span_of
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Activity, Event


def kept(recorder: Recorder) -> list[TraceSpan]:
    found = list(read(*recorder.finish()))
    recorder.close()
    return found


@pytest.mark.parametrize(
    ("event", "span"),
    [
        (Event(Forward(0), 1.0, 2.0), (COMPUTE, "F0", {})),
        (Event(Backward(0, 1), 1.0, 2.0), (COMPUTE, "B0.1", {})),
        (Event(Activity.TEST, 1.0, 2.0), (COMPUTE, "test", {})),
        (Event(Activity.DISPLAY, 1.0, 2.0, within=Forward(0)), (WITHIN, "display", {"in": "F0"})),
        (Event(Activity.WAIT_FOR_DATA, 1.0, 2.0, within=Forward(0)), (DATA, "wait for data", {"in": "F0"})),
        (Event(Activity.WRITE, 1.0, 2.0), (DISK, "write", {})),
        (
            Event(ExchangeGradients(1), 1.0, 2.0, method="Allreduce", message="a … b", calls=1, sent=8, received=9,
                  dtype=np.dtype("f4")),
            (EXCHANGE, "Allreduce",
             {"for": "X1", "parameters": "a … b", "bytes sent": 8, "bytes received": 9, "dtype": "float32"}),
        ),
        (
            Event(Send(0, 2), 1.0, 2.0, method="Isend", peer=0, calls=0),
            (MESSAGES, "Isend, wait", {"for": "S0.2", "peer": 0}),
        ),
        (Event(None, 1.0, 2.0, method="Barrier", calls=1), (MESSAGES, "Barrier", {})),
    ],
)  # fmt: skip
def test_where_events_are_shown(event: Event, span: tuple[str, str, dict[str, str | int]]) -> None:
    kind, name, details = span
    assert span_of(event) == TraceSpan(kind, "", name, 1.0, 2.0, details)


def test_events_come_back_with_what_segments_were_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUNCH", 3)
    events = EventBus()
    recorder = events.add(Recorder())
    for number in range(7):
        events.emit(Event(Forward(0), float(number), number + 0.5, flow=-number, layers=f"layer {number}"))
    assert [(span.start, span.details, span.flow) for span in kept(recorder)] == [
        (number, {"layers": f"layer {number}"}, -number) for number in range(7)
    ]


def test_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "LIMIT", 4)
    recorder = Recorder()
    with caplog.at_level(logging.WARNING, "bpt"):
        for number in range(6):
            recorder(Event(Forward(0), float(number), number + 0.5))
    assert [span.start for span in kept(recorder)] == [0.0, 1.0, 2.0, 3.0]
    assert (recorder.recorded, recorder.dropped) == (4, 2)
    assert caplog.messages == ["Trace: it has 4 events of this rank, which is the limit; trace a shorter run"]


def test_a_full_disk_ends_the_trace_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        """A file on a disk that has room for 3 bytes more."""

        def __init__(self, file: Any) -> None:
            self._file = file
            self._room = 3

        def write(self, content: memoryview) -> int:
            if not self._room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written, self._room = self._file.write(content[: self._room]), 0
            return int(written)

    monkeypatch.setattr(module, "BUNCH", 2)
    recorder = Recorder()
    for _ in range(2):
        recorder(Event(Forward(0), 1.0, 2.0))
    monkeypatch.setattr(recorder, "_raw", Full(recorder._raw))
    with caplog.at_level(logging.WARNING, "bpt"):
        for _ in range(5):
            recorder(Event(Forward(0), 1.0, 2.0))
    assert caplog.messages == ["Trace: it ends here: No space left on device"]
    assert len(kept(recorder)) == 2
    assert (recorder.recorded, recorder.dropped) == (2, 5)
