"""How an error ends whose place is in what was typed behind ``--set``."""

from __future__ import annotations


def at(column: int) -> str:
    """The rest of its line, the flag and the mark under the ``column`` of its text, as a regular expression."""
    return rf"[^\n]*\n  --set '[^\n]*\n {{{8 + column}}}\^$"
