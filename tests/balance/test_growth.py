from __future__ import annotations

import pytest

from bpt.balance.growth import MOST, Growth


def test_before_two_sizes_have_been_seen_the_guess_counts() -> None:
    growth = Growth(guess=100, least=10)
    assert (growth.largest, growth.per_sample) == (0, 100)
    growth.note(1, 5000)
    assert (growth.largest, growth.per_sample) == (1, 100)
    assert growth.cap(1000) == 1 + 8  # 0.8 · 1000 / 100


def test_the_steepest_growth_counts() -> None:
    growth = Growth(guess=100, least=10)
    growth.note(1, 5000)
    growth.note(2, 5300)
    assert growth.per_sample == 300
    growth.note(4, 5500)
    assert growth.per_sample == pytest.approx(500 / 3)  # over all; the last step is 100
    growth.note(8, 7500)
    assert growth.per_sample == 500  # over the last step; over all it is 2500 / 7
    assert growth.cap(10_000) == 8 + 16


def test_growth_that_cannot_be_seen_is_at_least_that_of_a_blob() -> None:
    growth = Growth(guess=100, least=10)
    growth.note(1, 5000)
    growth.note(2, 5000)
    assert growth.per_sample == 10
    assert growth.cap(1000) == 2 + 80
    assert growth.cap(-5) == 2  # what has run fits
    assert growth.cap(10**15) == MOST


def test_smaller_sizes_tell_nothing() -> None:
    growth = Growth(guess=100, least=10)
    for size, peak in ((1, 1000), (8, 1700), (4, 9000), (8, 9000)):
        growth.note(size, peak)
    assert (growth.largest, growth.per_sample) == (8, 100)
