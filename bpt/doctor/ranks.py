"""Ranks: who is on which host, and how ranks are named in findings."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from bpt.comm.base import Communicator
from bpt.errors import BptError

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

_SHOWN = 4  # hosts that are named in a line


@dataclass(frozen=True)
class Ranks:
    """All ranks of the job, and the host of each."""

    world: Communicator
    hosts: tuple[str, ...]

    @classmethod
    def meet(cls, world: Communicator) -> Ranks:
        """Learn the hosts' names; a collective call."""
        return cls(world, tuple(world.allgather(world.host)))

    @cached_property
    def by_host(self) -> dict[str, list[int]]:
        """Host → its ranks, both in order of rank."""
        found: dict[str, list[int]] = {}
        for rank, host in enumerate(self.hosts):
            found.setdefault(host, []).append(rank)
        return found

    @property
    def described(self) -> str:
        """Who is examined, in a line."""
        if self.world.size == 1:
            return f"One process, on host {self.hosts[0]}"
        hosts = f"host{'s' * (len(self.by_host) > 1)} {self._shown(list(self.by_host))}"
        return f"{self.world.size} ranks (the processes that work together, numbered from 0) on {hosts}"

    def named(self, ranks: Sequence[int]) -> str:
        """``rank 2 on host b``, ``ranks 0-1, 4 on hosts a, b``."""
        hosts = list(dict.fromkeys(self.hosts[rank] for rank in ranks))
        return f"rank{'s' * (len(ranks) > 1)} {spans(ranks)} on host{'s' * (len(hosts) > 1)} {self._shown(hosts)}"

    @staticmethod
    def _shown(hosts: list[str]) -> str:
        return ", ".join(hosts[:_SHOWN]) + (f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else "")


def spans(ranks: Sequence[int]) -> str:
    """Ascending numbers, runs as ``0-3``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def grouped(values: Sequence[H]) -> dict[H, list[int]]:
    """Value → the ranks that have it; that of rank 0 comes first."""
    found: dict[H, list[int]] = {}
    for rank, value in enumerate(values):
        found.setdefault(value, []).append(rank)
    return found


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """What a call gave, or the error that it raised."""

    value: T | None
    error: Exception | None

    @property
    def message(self) -> str:
        """What went wrong; empty: nothing."""
        return str(self.error) if self.error is not None else ""


def attempt(function: Callable[[], T]) -> Attempt[T]:
    """Call ``function``. What only one rank may meet (a file that is missing) must not keep it from the others."""
    try:
        return Attempt(function(), None)
    except (BptError, OSError) as error:
        return Attempt(None, error)
