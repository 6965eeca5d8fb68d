"""Findings, and names of ranks."""

from __future__ import annotations

import pytest

from bpt.apps.doctor.findings import Ranks, Section, attempt, grouped, note, ok, problem, spans, summary, warning
from bpt.base.errors import FileError
from bpt.system.comm.serial import SerialCommunicator
from tests.apps.doctor.world import on_hosts, same

SECTION = Section("Hosts", (ok("fine"), warning("slow", "buy another")), ("a  b", "1  2"))


def test_a_section_in_lines() -> None:
    assert list(SECTION.lines()) == [
        "Hosts",
        "  a  b",
        "  1  2",
        "  ok       fine",
        "  warning  slow",
        "           → buy another",
    ]


def test_the_last_line() -> None:
    assert summary([Section("A", (ok("x"), note("y")))]) == "no problems, no warnings: all is well"
    assert summary([SECTION]) == "no problems, 1 warning: a run would work, but not as well as it could; see above"
    bad = Section("B", (problem("p"), problem("q")))
    assert summary([SECTION, bad]) == "2 problems, 1 warning: a run would not work; see PROBLEM above"


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1], "0-1"), ([0, 2, 3, 4, 7], "0, 2-4, 7")])
def test_spans(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text


def test_names() -> None:
    ranks = Ranks(SerialCommunicator(), ("a", "a", "b", "c", "d", "e", "f"))
    assert ranks.named([2]) == "rank 2 on host b"
    assert ranks.named([0, 1, 2]) == "ranks 0-2 on hosts a, b"
    assert ranks.named(range(7)) == "ranks 0-6 on hosts a, b, c, d and 2 more"
    assert ranks.by_host["a"] == [0, 1]


def test_who_is_examined() -> None:
    assert Ranks(SerialCommunicator(), ("a",)).described == "One process, on host a"
    described = same(on_hosts(("a", "b", "a"), lambda ranks: ranks.described))
    assert described == "3 ranks (the processes that work together, numbered from 0) on hosts a, b"


def test_groups() -> None:
    assert grouped(["x", "y", "x"]) == {"x": [0, 2], "y": [1]}


def test_an_attempt() -> None:
    def fail() -> None:
        raise FileError("f", "is gone")

    assert attempt(lambda: 3).value == 3
    assert attempt(lambda: 3).message == ""
    assert attempt(fail).value is None
    assert attempt(fail).message == "f: is gone"
    with pytest.raises(ZeroDivisionError):  # a bug is not what a user can mend
        attempt(lambda: 1 / 0)
