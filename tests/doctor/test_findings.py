"""How findings read."""

from __future__ import annotations

from bpt.doctor.findings import Section, note, ok, problem, summary, warning

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
