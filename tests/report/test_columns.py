"""Rows of cells as lines of a table."""

from __future__ import annotations

from bpt.report.columns import columns


def test_text_stands_at_the_left_and_numbers_at_the_right() -> None:
    rows = [("rank", "host", "ms", "x"), ("0", "a", "1.5", "100"), ("10", "longer", "1000.25", "")]
    assert list(columns(rows, left=2)) == [
        "rank  host         ms    x",
        "0     a           1.5  100",
        "10    longer  1000.25",  # nothing trails
    ]


def test_all_numbers() -> None:
    assert list(columns([("a", "bb"), ("100", "2")], left=0)) == ["  a  bb", "100   2"]


def test_only_a_head() -> None:
    assert list(columns([("name", "n")], left=1)) == ["name  n"]
