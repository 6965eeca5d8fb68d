"""Writes bars, times and short numbers for a terminal; without torch, so that ``bpt watch`` begins at once."""

from __future__ import annotations

from bpt.base.log import number


def bar(done: int, total: int, words: str, width: int) -> str:
    """Return a bar of ``done`` parts of ``total``, empty if ``total`` is 0, and ``words`` behind it."""
    room = max(10, width - len(words) - 2)
    full = room * min(done, total) // total if total else 0
    return f"[{'█' * full}{'·' * (room - full)}]{words}"


def clock(seconds: float) -> str:
    """Return hours, minutes and seconds, such as 1:02:03."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def short(value: float) -> str:
    """Return a number with at most four significant digits."""
    return number(float(f"{value:.4g}"))
