"""Findings of checks, each in a line with a remedy if one is needed, and names for ranks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Generic, TypeVar

from bpt.base.errors import BptError
from bpt.config.plan.nets import NetPlan
from bpt.config.plan.run_plan import RunPlan
from bpt.perf.speeds.ping_pong import members
from bpt.system.comm.base import Communicator
from bpt.train.outer.roles import SERVER


class Severity(Enum):
    """The severity of a finding; the value is the printed word."""

    OK = "ok"
    NOTE = "note"  # good to know
    WARNING = "warning"  # the run works, but not well
    PROBLEM = "PROBLEM"  # the run does not work


@dataclass(frozen=True)
class Finding:
    """A result of a check.

    Attributes:
        kind: its severity.
        text: the result.
        remedy: what the user should do; "": nothing.
    """

    kind: Severity
    text: str
    remedy: str = ""


def ok(text: str) -> Finding:
    """Return a finding of severity OK."""
    return Finding(Severity.OK, text)


def note(text: str, remedy: str = "") -> Finding:
    """Return a finding of severity NOTE."""
    return Finding(Severity.NOTE, text, remedy)


def warning(text: str, remedy: str = "") -> Finding:
    """Return a finding of severity WARNING."""
    return Finding(Severity.WARNING, text, remedy)


def problem(text: str, remedy: str = "") -> Finding:
    """Return a finding of severity PROBLEM."""
    return Finding(Severity.PROBLEM, text, remedy)


@dataclass(frozen=True)
class Section:
    """The findings of one check.

    Attributes:
        title: the name of the check.
        findings: the findings.
        table: lines that are shown before them.
    """

    title: str
    findings: tuple[Finding, ...]
    table: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the section as it is printed."""
        yield self.title
        for line in self.table:
            yield f"  {line}".rstrip()
        for finding in self.findings:
            yield f"  {finding.kind.value:8} {finding.text}"
            if finding.remedy:
                yield f"  {'':8} → {finding.remedy}"


def count_of(kind: Severity, sections: Iterable[Section]) -> int:
    """Return the number of findings of a kind."""
    return sum(finding.kind is kind for section in sections for finding in section.findings)


def summary(sections: Iterable[Section]) -> str:
    """Return the last line, which counts problems and warnings and says what they mean."""
    sections = tuple(sections)
    problems, warnings = count_of(Severity.PROBLEM, sections), count_of(Severity.WARNING, sections)
    if problems:
        meaning = "a run would not work; see PROBLEM above"
    elif warnings:
        meaning = "a run would work, but not as well as it could; see above"
    else:
        meaning = "all is well"
    return f"{_number(problems, 'problem')}, {_number(warnings, 'warning')}: {meaning}"


def _number(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'s' * (count != 1)}"


def bytes_text(nbytes: int) -> str:
    """Return a number of bytes as text: ``1.5 MiB``."""
    power, unit = next((p, u) for p, u in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if nbytes >= 2**p or p == 10)
    return f"{nbytes / 2**power:.1f} {unit}"


T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

_SHOWN = 4  # hosts that a line names


@dataclass(frozen=True)
class Ranks:
    """All ranks of the job, and the host of each."""

    world: Communicator
    hosts: tuple[str, ...]

    @classmethod
    def meet(cls, world: Communicator) -> Ranks:
        """Return all ranks with the names of their hosts; a collective call."""
        return cls(world, tuple(world.allgather(world.host)))

    @cached_property
    def by_host(self) -> dict[str, list[int]]:
        """The ranks of each host, in order of rank."""
        return members(self.hosts)

    @property
    def described(self) -> str:
        """The examined ranks and hosts, in a line."""
        if self.world.size == 1:
            return f"One process, on host {self.hosts[0]}"
        hosts = f"host{'s' * (len(self.by_host) > 1)} {self._shown(list(self.by_host))}"
        return f"{self.world.size} ranks (the processes that work together, numbered from 0) on {hosts}"

    def named(self, ranks: Sequence[int]) -> str:
        """Return names for ranks: ``rank 2 on host b``, ``ranks 0-1, 4 on hosts a, b``."""
        hosts = list(dict.fromkeys(self.hosts[rank] for rank in ranks))
        return f"rank{'s' * (len(ranks) > 1)} {spans(ranks)} on host{'s' * (len(hosts) > 1)} {self._shown(hosts)}"

    @staticmethod
    def _shown(hosts: list[str]) -> str:
        return ", ".join(hosts[:_SHOWN]) + (f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else "")


def spans(ranks: Sequence[int]) -> str:
    """Return ascending numbers as text, with runs as ``0-3``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def grouped(values: Sequence[H]) -> dict[H, list[int]]:
    """Return the ranks that have each value; the value of rank 0 comes first."""
    found: dict[H, list[int]] = {}
    for rank, value in enumerate(values):
        found.setdefault(value, []).append(rank)
    return found


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """The value of a call, or the error that it raised."""

    value: T | None
    error: Exception | None

    @property
    def message(self) -> str:
        """The message of the error; empty: there is none."""
        return str(self.error) if self.error is not None else ""


def attempt(function: Callable[[], T]) -> Attempt[T]:
    """Call ``function`` and catch the errors that one rank alone may have, so that the others do not wait for it."""
    try:
        return Attempt(function(), None)
    except (BptError, OSError) as error:
        return Attempt(None, error)


def reads_all(plan: RunPlan, rank: int) -> bool:
    """Return whether ``rank`` needs the test nets, weights to start from, and a snapshot to resume."""
    return rank == SERVER or not plan.is_outer


def nets_with_data(plans: Mapping[str, NetPlan], plan: RunPlan, rank: int) -> dict[str, NetPlan]:
    """Return the nets whose data a rank reads itself."""
    shipped = plan.parallel_param.ship_data and not reads_all(plan, rank)
    return {} if shipped else dict(plans)
