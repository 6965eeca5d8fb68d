from __future__ import annotations

from bpt.balance.report import lines
from bpt.share import Share

SHARES = (Share(0, 48, 64), Share(48, 16, 64))


def test_predicted() -> None:
    # The mean is 0.011; 0.012 / 0.011 = 1.0909.
    assert lines(SHARES, [0.012, 0.010]) == [
        "Balance: rank 0 trains 48 of 64 samples, predicted 12 ms",
        "Balance: rank 1 trains 16 of 64 samples, predicted 10 ms",
        "Balance: imbalance predicted 9.1% (slowest rank over the mean)",
    ]


def test_predicted_and_seen() -> None:
    assert lines(SHARES, [0.011, 0.011], [0.01234567, 0.01]) == [
        "Balance: rank 0 trains 48 of 64 samples, predicted 11 ms, seen 12.35 ms",
        "Balance: rank 1 trains 16 of 64 samples, predicted 11 ms, seen 10 ms",
        "Balance: imbalance predicted 0.0%, seen 10.5% (slowest rank over the mean)",
    ]


def test_without_a_profile() -> None:
    assert lines(SHARES) == ["Balance: rank 0 trains 48 of 64 samples", "Balance: rank 1 trains 16 of 64 samples"]
    assert lines(SHARES, None, [1.0, 3.0])[2] == "Balance: imbalance seen 50.0% (slowest rank over the mean)"
