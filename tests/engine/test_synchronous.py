"""The instructions of an iteration, as one reads them."""

from __future__ import annotations

import pytest

from bpt.engine.synchronous import synchronous


@pytest.mark.parametrize(
    ("segments", "iter_size", "broadcast", "expected"),
    [
        (1, 1, False, "F0 B0 X0 W U"),
        (3, 1, False, "F0 F1 F2 B2 X2 B1 X1 B0 X0 W U"),
        (1, 2, False, "F0 B0 F0 B0 X0 W U"),
        (2, 2, False, "F0 F1 B1 B0 F0 F1 B1 X1 B0 X0 W U"),
        (2, 1, True, "C F0 F1 B1 X1 B0 X0 W U"),
    ],
)
def test_instructions(segments: int, iter_size: int, broadcast: bool, expected: str) -> None:
    assert " ".join(map(str, synchronous(segments, iter_size, broadcast))) == expected


@pytest.mark.parametrize(
    ("segments", "iter_size", "expected"),
    [(1, 1, "P0 X0 W U"), (3, 1, "F0 F1 P2 X2 B1 X1 B0 X0 W U"), (2, 2, "F0 P1 B0 F0 P1 X1 B0 X0 W U")],
)
def test_the_last_segment_in_one(segments: int, iter_size: int, expected: str) -> None:
    assert " ".join(map(str, synchronous(segments, iter_size, joined=True))) == expected
