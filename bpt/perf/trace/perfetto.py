"""Perfetto's trace format: TrackEvents for ui.perfetto.dev and its trace processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO

from bpt.perf.trace import perfetto_trace_pb2 as pf
from bpt.perf.trace.recorder import TraceSpan

TRACKS = 1 << 16  # largest number of tracks of a rank; the first one is the process
_SEQUENCE = 1


class PerfettoTrace:
    """Writes a trace packet by packet; its methods are those of ChromeTrace.

    The process of a rank has the number rank + 1, since process 0 is the system's.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._last = 0

    def process(self, rank: int, name: str, label: str) -> None:
        process = pf.ProcessDescriptor(pid=rank + 1, process_name=name, process_labels=[label])
        self._write(pf.TracePacket(track_descriptor=pf.TrackDescriptor(uuid=_uuid(rank), process=process)))

    def track(self, rank: int, number: int, name: str, kind: str) -> None:
        thread = pf.ThreadDescriptor(pid=rank + 1, tid=_uuid(rank, number), thread_name=name)
        track = pf.TrackDescriptor(uuid=_uuid(rank, number), parent_uuid=_uuid(rank), thread=thread)
        self._write(pf.TracePacket(track_descriptor=track))

    def span(self, rank: int, track: int, span: TraceSpan, start: int, end: int) -> None:
        uuid = _uuid(rank, track)
        begin = pf.TrackEvent(
            type=pf.TrackEvent.TYPE_SLICE_BEGIN,
            track_uuid=uuid,
            name=span.name,
            categories=[span.kind],
            debug_annotations=_annotations(span.details),
            flow_ids=[span.flow] if span.flow > 0 else [],
        )
        # Perfetto ends a flow at the time of an event, so it belongs to the span's end, when the message has arrived.
        arrived = [-span.flow] if span.flow < 0 else []
        finish = pf.TrackEvent(type=pf.TrackEvent.TYPE_SLICE_END, track_uuid=uuid, terminating_flow_ids=arrived)
        self._event(start, begin)
        self._event(end, finish)

    def close(self, about: Mapping[str, object]) -> None:
        """Write ``about`` as an event at the end of the first rank's process."""
        event = pf.TrackEvent(
            type=pf.TrackEvent.TYPE_INSTANT,
            track_uuid=_uuid(0),
            name="about this trace",
            debug_annotations=_annotations(about),
        )
        self._event(self._last, event)

    def _event(self, at: int, event: pf.TrackEvent) -> None:
        self._last = max(self._last, at)
        self._write(pf.TracePacket(timestamp=at, trusted_packet_sequence_id=_SEQUENCE, track_event=event))

    def _write(self, packet: pf.TracePacket) -> None:
        self._file.write(pf.Trace(packet=[packet]).SerializeToString())


def _uuid(rank: int, track: int = 0) -> int:
    return (rank + 1) * TRACKS + track


def _annotations(values: Mapping[str, object]) -> Iterator[pf.DebugAnnotation]:
    for name, value in values.items():
        if isinstance(value, int):
            yield pf.DebugAnnotation(name=name, uint_value=value)
        elif isinstance(value, float):
            yield pf.DebugAnnotation(name=name, double_value=value)
        else:
            yield pf.DebugAnnotation(name=name, string_value=str(value))
