"""Texts that are committed beside a test, and the outline of a page, by which pages are compared with them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from bpt.base.version import VERSION

RENEW = "BPT_RENEW"
_EMPTY = {"meta", "img"}
_SHOWN = ("role", "class", "aria-label", "alt", "content", "http-equiv", "fill", "stroke", "stroke-dasharray", "style")


def check_golden(path: Path, text: str) -> None:
    """Compare ``text`` with the file; with RENEW in the environment, write it instead."""
    if os.environ.get(RENEW):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), (
        f"{path.name} differs. Look at the page; if it is as it should be: {RENEW}=1 .venv/bin/pytest {path.parent}"
    )


class _Outline(HTMLParser):
    """Collects a line for each element and each text, indented by its depth."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._open: list[tuple[str, bool]] = []
        self._is_fresh = False  # whether the last line is the element that is open, and has no text yet

    @property
    def _is_hidden(self) -> bool:
        return any(hides for _, hides in self._open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, dict(attrs))
        if tag not in _EMPTY:
            hides = tag == "style" or dict(attrs).get("class") == "drawing"  # matplotlib's version decides the drawing
            self._open.append((tag, hides))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()
        self._is_fresh = False

    def handle_data(self, data: str) -> None:
        for line in data.strip().splitlines():
            if self._is_hidden or not line.strip():
                continue
            if self._is_fresh:
                self.lines[-1] += f" {line.strip()}"
            else:
                self.lines.append(f"{'  ' * len(self._open)}{line.strip()}")
            self._is_fresh = False

    def _note(self, tag: str, attrs: dict[str, str | None]) -> None:
        if not self._is_hidden:
            shown = "".join(f" {name}={attrs[name]}" for name in _SHOWN if attrs.get(name))
            count = f" of {len((attrs.get('points') or '').split())} points" if tag == "polyline" else ""
            self.lines.append(f"{'  ' * len(self._open)}<{tag}{shown}>{count}")
            self._is_fresh = True


def outline(html: str) -> str:
    """The structure of a page: its elements and texts, without places, drawings, pictures and bpt's version."""
    parser = _Outline()
    parser.feed(html)
    return "".join(f"{line}\n" for line in _without_grid(parser.lines)).replace(VERSION, "VERSION")


def _without_grid(lines: list[str]) -> Iterator[str]:
    """Without lines of grids, and with equal neighbours as one line with their number."""
    kept = [line for line in lines if line.strip() != "<line class=grid>"]
    for number, line in enumerate(kept):
        if number and kept[number - 1] == line:
            continue
        same = next((end for end in range(number, len(kept)) if kept[end] != line), len(kept)) - number
        yield line + (f" × {same}" if same > 1 else "")


def rounded(text: str) -> str:
    """``text`` with numbers of at most four digits behind the point."""
    return re.sub(r"\d+\.\d{5,}", lambda found: f"{float(found[0]):.4f}", text)
