from __future__ import annotations

import pytest

from bpt.parallel.balance.batch_shares import imbalance
from bpt.parallel.outer.quantities import balance_index, bytes_moved, waiting_time, waiting_times

# Two iterations of three nodes: the slowest takes 4, then 3.
DURATIONS = [[1.0, 4.0, 2.0], [3.0, 2.0, 2.5]]


def test_waiting() -> None:
    """Eq. 8: 3 + 0 + 2, then 0 + 1 + 0.5."""
    assert waiting_times(DURATIONS) == (3.0, 1.0, 2.5)
    assert waiting_time(DURATIONS) == 6.5
    assert waiting_times([]) == ()
    assert waiting_time([]) == 0


def test_who_has_left_does_not_wait() -> None:
    """The second leaves after the first iteration; then the slowest takes 3, and finally there is nobody."""
    assert waiting_times([[1.0, 4.0, 2.0], [3.0, None, 2.0], [None] * 3]) == (3.0, 0.0, 3.0)


def test_balance_index() -> None:
    assert balance_index([[2.0, 2.0], [3.0, 3.0]]) == 1
    assert balance_index([[3.0, 1.0, 2.0]]) == pytest.approx(2 / 3)  # mean 2, max 3
    assert balance_index([[3.0, 1.0, 2.0]]) == pytest.approx(1 / (1 + imbalance([3.0, 1.0, 2.0])))
    assert balance_index(DURATIONS) == pytest.approx(14.5 / 21)  # 7 + 7.5 of 3 · 4 + 3 · 3
    assert balance_index([[4.0, None, 2.0]]) == pytest.approx(3 / 4)
    assert balance_index([]) == balance_index([[0.0, 0.0]]) == 1


def test_bytes_moved() -> None:
    """Eq. 11: 1000 bytes there and back, of 3 nodes, 5 times."""
    assert bytes_moved(1000, nodes=3, iterations=5) == 30_000
