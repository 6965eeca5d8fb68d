"""Ranks that are threads of this process, on hosts with names, each with something of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from bpt.apps.doctor.findings import Finding, Ranks, Section, Severity
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks

T = TypeVar("T")


def this_rank() -> int:
    """The rank of the calling thread, for what is called without a communicator."""
    return int(threading.current_thread().name.removeprefix("rank "))


def on_hosts(hosts: Sequence[str], check: Callable[[Ranks], T], timeout: float = 120.0) -> list[T]:
    """What ``check`` returns on each rank, where rank r is on ``hosts[r]``."""
    return run_ranks(len(hosts), lambda world: check(Ranks(world, tuple(hosts))), timeout)


def same(results: list[T]) -> T:
    """What all ranks have returned."""
    assert all(result == results[0] for result in results)
    return results[0]


def name_hosts(monkeypatch: pytest.MonkeyPatch, hosts: Sequence[str]) -> None:
    """Let the ranks themselves say that they are on ``hosts``."""
    monkeypatch.setattr(ThreadCommunicator, "host", property(lambda comm: hosts[comm.rank]))


def texts_of(section: Section, kind: Severity) -> list[str]:
    """The texts of a section's findings of one kind."""
    return [finding.text for finding in section.findings if finding.kind is kind]


def only(section: Section) -> Finding:
    """The only finding of a section."""
    (finding,) = section.findings
    return finding
