"""Findings: what a check has seen, in a line each, with a remedy where one is called for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How bad it is; the value is the word that is printed."""

    OK = "ok"
    NOTE = "note"  # good to know
    WARNING = "warning"  # the run works, but not well
    PROBLEM = "PROBLEM"  # the run does not work


@dataclass(frozen=True)
class Finding:
    """What was seen, and what to do about it (empty: nothing)."""

    kind: Kind
    text: str
    remedy: str = ""


def ok(text: str) -> Finding:
    return Finding(Kind.OK, text)


def note(text: str, remedy: str = "") -> Finding:
    return Finding(Kind.NOTE, text, remedy)


def warning(text: str, remedy: str = "") -> Finding:
    return Finding(Kind.WARNING, text, remedy)


def problem(text: str, remedy: str = "") -> Finding:
    return Finding(Kind.PROBLEM, text, remedy)


@dataclass(frozen=True)
class Section:
    """What one check found; ``table`` holds lines that are shown before the findings."""

    title: str
    findings: tuple[Finding, ...]
    table: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The section as it is printed."""
        yield self.title
        for line in self.table:
            yield f"  {line}".rstrip()
        for finding in self.findings:
            yield f"  {finding.kind.value:8} {finding.text}"
            if finding.remedy:
                yield f"  {'':8} → {finding.remedy}"


def count_of(kind: Kind, sections: Iterable[Section]) -> int:
    """How many findings of a kind there are."""
    return sum(finding.kind is kind for section in sections for finding in section.findings)


def summary(sections: Iterable[Section]) -> str:
    """The last line, which says what it all means."""
    sections = tuple(sections)
    problems, warnings = count_of(Kind.PROBLEM, sections), count_of(Kind.WARNING, sections)
    if problems:
        meaning = "a run would not work; see PROBLEM above"
    elif warnings:
        meaning = "a run would work, but not as well as it could; see above"
    else:
        meaning = "all is well"
    return f"{_number(problems, 'problem')}, {_number(warnings, 'warning')}: {meaning}"


def _number(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'s' * (count != 1)}"
