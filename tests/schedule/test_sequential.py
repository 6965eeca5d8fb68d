"""The instructions of one process's iteration, as one reads them."""

from __future__ import annotations

import pytest

from bpt.schedule.sequential import sequential


@pytest.mark.parametrize(
    ("segments", "iter_size", "expected"),
    [
        (1, 1, "F0 B0 U"),
        (3, 1, "F0 F1 F2 B2 B1 B0 U"),
        (1, 2, "F0 B0 F0 B0 U"),
        (2, 2, "F0 F1 B1 B0 F0 F1 B1 B0 U"),
    ],
)
def test_instructions(segments: int, iter_size: int, expected: str) -> None:
    assert " ".join(map(str, sequential(segments, iter_size))) == expected
