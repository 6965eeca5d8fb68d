"""The hash against SplitMix64's published numbers, and how evenly it falls."""

from __future__ import annotations

import numpy as np

from bpt.data.counter_hash import below, hash_samples


def splitmix(state: int) -> int:
    """SplitMix64's output in the state, in Python's integers."""
    mask = 2**64 - 1
    mixed = (state + 0x9E3779B97F4A7C15) & mask
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    return mixed ^ mixed >> 31


def test_reference_is_splitmix64() -> None:
    assert splitmix(0) == 0xE220A8397B1DCDAF  # its first number from seed 0


def test_hash_is_that_of_the_reference() -> None:
    seed, epochs, samples = 2**62 + 12345, np.array([0, 1, 7]), np.array([5, 0, 123456789])
    expected = [
        splitmix((splitmix((seed + e * 0x9E3779B97F4A7C15) % 2**64) + s * 0x9E3779B97F4A7C15) % 2**64)
        for e, s in zip(epochs.tolist(), samples.tolist(), strict=True)
    ]
    assert hash_samples(seed, epochs, samples).tolist() == expected


def test_below_maps_the_ends_to_the_ends() -> None:
    hashes = np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    assert below(5, hashes).tolist() == [0, 2, 2, 4]
    assert below(np.array([1, 2, 2, 9]), hashes).tolist() == [0, 0, 1, 8]


def test_numbers_are_even_over_samples_and_over_epochs() -> None:
    many, one = np.arange(50_000), np.zeros(50_000, np.int64)
    for epochs, samples in ((one, many), (many, one)):
        counts = np.bincount(below(5, hash_samples(1, epochs, samples)), minlength=5)
        # 10,000 expected each; the standard deviation is sqrt(50000 · 1/5 · 4/5) = 89
        assert np.abs(counts - 10_000).max() < 4 * 89
