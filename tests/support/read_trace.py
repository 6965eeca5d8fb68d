"""Reads traces back, with nothing of the code that writes them but the schema of Perfetto's."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bpt.perf.trace import perfetto_trace_pb2 as pf


@dataclass
class Bar:
    """A span; times are microseconds."""

    name: str
    start: float
    end: float
    details: dict[str, Any]


@dataclass
class Trace:
    """What a file shows: process names, bars by rank and track, and where flows begin and end, by their id."""

    processes: dict[int, str] = field(default_factory=dict)
    tracks: dict[tuple[int, str], list[Bar]] = field(default_factory=lambda: defaultdict(list))
    flows: dict[Any, dict[str, tuple[int, float]]] = field(default_factory=lambda: defaultdict(dict))
    about: dict[str, Any] = field(default_factory=dict)

    def check_compute(self, rank: int, counts: dict[str, int], full: float = 0.0) -> None:
        """Bars of the track "compute" lie side by side, so many begin with a letter, and they fill most iterations.

        ``full`` is what they fill of at least every second iteration: others may wait for a busy machine's core.
        """
        bars = sorted(self.tracks[rank, "compute"], key=lambda bar: bar.start)
        overlaps = [(one, two) for one, two in pairwise(bars) if one.end > two.start + 0.002]
        assert not overlaps
        letters = Counter(bar.name[0] for bar in bars if bar.name not in ACTIVITIES)
        assert {letter: letters[letter] for letter in counts} == counts
        starts = [number for number, bar in enumerate(bars) if bar.name[0] == "F"]
        filled = [
            sum(bar.end - bar.start for bar in bars[one:two]) / (bars[two].start - bars[one].start)
            for one, two in pairwise(starts)
        ]
        assert not full or median(filled) >= full

    def check_flows(self, least: int) -> None:
        """Each goes from one rank to another one, and forward in time; all but a few have both ends."""
        whole = [flow for flow in self.flows.values() if len(flow) == 2]
        assert len(whole) >= max(least, len(self.flows) - 2)
        assert all(flow["from"][0] != flow["to"][0] for flow in whole)
        error = sum(value for name, value in self.about.items() if name.startswith("clock error"))
        assert all(flow["from"][1] <= flow["to"][1] + error for flow in whole)


ACTIVITIES = {"between iterations", "test", "snapshot", "display", "merge"}


def read_chrome(path: Path) -> Trace:
    """Chrome's format."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = json.load(file)
    events, trace = content["traceEvents"], Trace(about=content["otherData"])
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for e in events:
        place = (e["pid"], names.get((e["pid"], e["tid"]), ""))
        if e["name"] == "process_name":
            trace.processes[e["pid"]] = e["args"]["name"]
        elif e["ph"] == "X":
            trace.tracks[place].append(Bar(e["name"], e["ts"], e["ts"] + e["dur"], e["args"]))
        elif e["ph"] in "sf":
            trace.flows[e["id"]]["from" if e["ph"] == "s" else "to"] = e["pid"], e["ts"]
    return trace


def read_perfetto(path: Path) -> Trace:
    """Perfetto's format."""
    trace, places, open_bars, threads = Trace(), {}, {}, {}
    for packet in pf.Trace.FromString(path.read_bytes()).packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                trace.processes[track.process.pid - 1] = track.process.process_name
                threads[track.uuid] = track.process.pid - 1
            else:
                places[track.uuid] = threads[track.parent_uuid], track.thread.thread_name
            continue
        event, at = packet.track_event, packet.timestamp / 1e3
        details = {a.name: getattr(a, a.WhichOneof("value")) for a in event.debug_annotations}
        if event.type == pf.TrackEvent.TYPE_INSTANT:
            trace.about = details
        elif event.type == pf.TrackEvent.TYPE_SLICE_BEGIN:
            open_bars[event.track_uuid] = Bar(event.name, at, at, details)
        else:
            bar = open_bars.pop(event.track_uuid)
            bar.end = at
            trace.tracks[places[event.track_uuid]].append(bar)
        for ends, ids in (("from", event.flow_ids), ("to", event.terminating_flow_ids)):
            for number in ids:
                trace.flows[number][ends] = places[event.track_uuid][0], at
    assert not open_bars
    return trace
