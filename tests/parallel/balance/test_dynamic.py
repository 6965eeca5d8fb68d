"""Shares that follow what was seen, worked out by hand: times are milliseconds, and those of shares in proportion."""

from __future__ import annotations

import pytest

from bpt.parallel.balance.dynamic import Dynamic

AMPLE = [1000, 1000]


def counts(balance: Dynamic, total: int = 10) -> list[int]:
    shares = balance.shares(total, 2)
    assert [share.start for share in shares] == [0, shares[0].count]
    return [share.count for share in shares]


def test_alike_until_something_is_seen() -> None:
    assert [share.count for share in Dynamic(3).shares(10, 3)] == [4, 3, 3]


def test_shares_by_what_was_seen() -> None:
    """1 ms and 4 ms a sample: 8 and 2 samples take 8 ms each. What follows from other totals follows, too."""
    balance = Dynamic(2)
    assert balance.follow(10, [5, 20], AMPLE)
    assert counts(balance) == [8, 2]
    assert counts(balance, 5) == [4, 1]
    assert balance.predicted_seconds(balance.shares(10, 2)) == (8, 8)


@pytest.mark.parametrize("times", [[5.2, 5], [5, 6]])  # a sample less for the second: 6 and 4 of them take 6 ms
def test_what_does_not_pay_changes_nothing(times: list[float]) -> None:
    balance = Dynamic(2)
    assert not balance.follow(10, times, AMPLE)
    assert counts(balance) == [5, 5]


def test_a_machine_that_slows_down_and_recovers() -> None:
    """At a quarter of its speed a rank that took 1 ms a sample takes 4, as the other does; then as before."""
    balance = Dynamic(2)
    assert balance.follow(10, [5, 20], AMPLE)
    assert balance.follow(10, [32, 8], AMPLE)
    assert counts(balance) == [5, 5]
    assert not balance.follow(10, [20, 20], AMPLE)
    assert balance.follow(10, [5, 20], AMPLE)
    assert counts(balance) == [8, 2]


def test_a_fixed_part_of_times() -> None:
    """Both need 4 ms at first, and 1 or 3 ms a sample.

    5 samples take 9 and 19 ms, so the first guess is 7 and 3, which take 11 and 13. For an eighth sample the first rank
    is expected to take a seventh of 11 ms more, 12.6: that is not 5 % less than 13.
    """
    balance = Dynamic(2)
    assert balance.follow(10, [4 + 5, 4 + 15], AMPLE)
    assert counts(balance) == [7, 3]
    assert not balance.follow(10, [4 + 7, 4 + 9], AMPLE)


def test_within_memory() -> None:
    balance = Dynamic(2)
    assert balance.follow(10, [5, 20], [6, 10])
    assert counts(balance) == [6, 4]


def test_everybody_keeps_a_sample() -> None:
    balance = Dynamic(2)
    assert balance.follow(10, [1, 10000], AMPLE)
    assert counts(balance) == [9, 1]


def test_more_ranks_than_samples() -> None:
    balance = Dynamic(3)
    assert not balance.follow(2, [1, 100, 0], [9, 9, 9])
    assert [share.count for share in balance.shares(2, 3)] == [1, 1, 0]


def test_a_run_goes_on_with_the_shares_it_had() -> None:
    balance = Dynamic(2)
    balance.use_shares([7, 3])
    assert counts(balance) == [7, 3]
    assert balance.follow(10, [70, 3], AMPLE)  # 10 ms and 1 ms a sample
    assert counts(balance) == [1, 9]


def test_a_test_has_no_limits_of_memory() -> None:
    balance = Dynamic(2)
    balance.follow(10, [5, 20], [6, 10])
    assert counts(balance.without_caps(), 100) == [80, 20]
