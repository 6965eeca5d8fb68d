"""The part of a report about the ranks' time: some iterations of a trace, with a row for each kind of track."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bpt.apps.report.curve_chart import round_ticks, tick_label
from bpt.apps.report.markup import key
from bpt.base.errors import FileError
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.train.outer.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

ITERATIONS = 2  # that are drawn: the shortest ones that follow each other
COMPUTE, EXCHANGE, DATA = "compute", "exchange", "data"
ROWS = (COMPUTE, EXCHANGE, DATA)  # of each rank
COLOURS = {
    "forward": BLUE, "backward": RED, "update": GREEN, "start of an exchange": ORANGE, "exchange": PURPLE,
    "wait": GREY, "other": SKY,
}  # fmt: skip
_LETTERS = {
    "F": "forward", "B": "backward", "I": "backward", "V": "backward", "U": "update", "X": "start of an exchange",
    "W": "wait", "G": "wait",
}  # fmt: skip
_INSTRUCTION = re.compile(r"[A-Z](\d+(\.\d+)?)?")
_MEANINGS = (
    "F0: forward of segment 0 (some layers of the network); F0.1: of its micro-batch 1. B: backward. "
    "I and V: the two parts of a backward pass, diffs of inputs and gradients of weights. "
    "X: start of the exchange of a segment's gradients. W: wait for the exchanges. U: update of the weights. "
    "G: wait for the weights of a segment that other ranks have updated."
)
_WIDTH, _LEFT, _ROW, _FOOT = 1040, 150, 18, 40
_LEAST = 0.8  # the least width of a bar, so that a short one can be seen


@dataclass(frozen=True)
class TimelineBar:
    """A span of a trace; times are milliseconds since the trace began."""

    rank: int
    row: str
    name: str
    start: float
    end: float

    @property
    def kind(self) -> str:
        """The key of its colour in COLOURS."""
        if self.name.startswith("wait"):
            return "wait"
        if self.row == EXCHANGE:
            return "exchange"
        if self.row == COMPUTE and _INSTRUCTION.fullmatch(self.name):
            return _LETTERS.get(self.name[0], "other")
        return "other"


def timeline_section(path: str) -> Iterator[str]:
    """Yield the HTML of the timeline of the trace in ``path``, as ``bpt train --trace`` writes it in JSON.

    Raises:
        FileError: the file cannot be read, is no such trace, or has too few iterations.
    """
    bars = _read(path)
    ends = sorted(bar.end for bar in bars if bar.kind == "update" and bar.rank == bars[0].rank)
    if len(ends) <= ITERATIONS:
        raise FileError(path, f"has {len(ends)} iterations; the timeline shows {ITERATIONS}, after the first")
    first = min(range(len(ends) - ITERATIONS), key=lambda place: ends[place + ITERATIONS] - ends[place])
    start, end = ends[first], ends[first + ITERATIONS]
    yield f"<h2>Timeline</h2>\n<p>The shortest {ITERATIONS} iterations in a row of {escape(Path(path).name)}."
    yield f"Point at a bar to read it. Empty places are idle time.</p>\n<p>{_MEANINGS}</p>\n<p>"
    for kind, colour in COLOURS.items():
        yield key(f'<rect width="48" height="8" fill="{colour}"/>', kind)
    yield "</p>"
    drawn = _drawing([bar for bar in bars if bar.end > start and bar.start < end], start, end)
    yield f'<div class="wide">\n{drawn}\n</div>'


def _read(path: str) -> list[TimelineBar]:
    """Return the bars of the rows that are drawn, in the file's order."""
    try:
        content = read_bytes(path)
        events = json.loads(gzip.decompress(content) if path.endswith(".gz") else content)["traceEvents"]
        bars = [
            TimelineBar(e["pid"], e["cat"], e["name"], e["ts"] / 1e3, (e["ts"] + e["dur"]) / 1e3)
            for e in events
            if e["ph"] == "X" and e["cat"] in ROWS
        ]
    except UnreadableError as error:
        raise FileError(path, str(error)) from None
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        raise FileError(path, "is no trace in Chrome's format: write one with bpt train --trace trace.json") from None
    if not bars:
        raise FileError(path, "is a trace without computing")
    return bars


def _drawing(bars: Sequence[TimelineBar], start: float, end: float) -> str:
    """Return the SVG element of ``bars`` between two times."""
    rows = [(rank, row) for rank in sorted({bar.rank for bar in bars}) for row in ROWS]
    rows = [place for place in rows if any((bar.rank, bar.row) == place for bar in bars)]
    height, scale = len(rows) * _ROW, (_WIDTH - _LEFT) / (end - start)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height + _FOOT}" role="img" aria-label="timeline of the ranks">']
    for number, (rank, row) in enumerate(rows):
        y = number * _ROW
        parts.append(f'<text x="0" y="{y + 13}">rank {rank}: {row}</text>')
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y + _ROW}" y2="{y + _ROW}"/>')
        for bar in (bar for bar in bars if (bar.rank, bar.row) == (rank, row)):
            left = max(bar.start, start)
            width = max((min(bar.end, end) - left) * scale, _LEAST)
            parts.append(
                f'<rect x="{_LEFT + (left - start) * scale:.2f}" y="{y + 2}" width="{width:.2f}" '
                f'height="{_ROW - 4}" fill="{COLOURS[bar.kind]}">'
                f"<title>{escape(bar.name)}: {bar.end - bar.start:.3f} ms</title></rect>"
            )
    for value in (ticks := round_ticks(0.0, end - start)):
        x = _LEFT + value * scale
        anchor = "end" if x > _WIDTH - 20 else "middle"
        label = tick_label(value, ticks)
        parts.append(f'<text x="{x:.1f}" y="{height + 16}" text-anchor="{anchor}">{label}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2}" y="{height + 34}" text-anchor="middle">time in ms</text>')
    return "\n".join([*parts, "</svg>"])
