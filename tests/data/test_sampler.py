"""The stream of samples, and its random numbers."""

from __future__ import annotations

import numpy as np

from bpt.data.sampler import Sampler, below, hash_samples


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


def test_in_order_round_and_round() -> None:
    draw = Sampler([3, 2]).indices(3, 9)
    assert draw.samples.tolist() == [3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert draw.epochs.tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2]


def test_skip_moves_the_start() -> None:
    draw = Sampler([5], skip=7).indices(0, 4)
    assert draw.samples.tolist() == [2, 3, 4, 0]
    assert draw.epochs.tolist() == [1, 1, 1, 2]


def test_shuffle_permutes_every_epoch_anew() -> None:
    epochs = Sampler([50], shuffle=True, seed=1).indices(0, 150).samples.reshape(3, 50)
    for epoch in epochs:
        assert sorted(epoch.tolist()) == list(range(50))
    assert len({tuple(epoch) for epoch in epochs.tolist()} | {tuple(range(50))}) == 4


def test_shuffle_depends_on_the_seed_alone() -> None:
    orders = [Sampler([50], shuffle=True, seed=seed).indices(0, 50).samples.tolist() for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_any_stretch_can_be_drawn_at_any_time() -> None:
    whole = Sampler([7, 4], shuffle=True, seed=3).indices(0, 66)
    sampler = Sampler([7, 4], shuffle=True, seed=3)
    for position, count in ((40, 26), (0, 5), (5, 35), (9, 0)):
        draw = sampler.indices(position, count)
        np.testing.assert_array_equal(draw.samples, whole.samples[position : position + count])
        np.testing.assert_array_equal(draw.epochs, whole.epochs[position : position + count])


def test_shuffle_keeps_files_together_and_changes_their_order() -> None:
    sizes = [4, 3, 5]
    file_of = np.repeat([0, 1, 2], sizes)
    sampler = Sampler(sizes, shuffle=True, seed=0)
    orders = set()
    for epoch in range(30):
        files = file_of[sampler.indices(epoch * 12, 12).samples].tolist()
        order = tuple(dict.fromkeys(files))
        assert files == [file for file in order for _ in range(sizes[file])]
        orders.add(order)
    assert len(orders) == 6  # all 3! orders within 30 epochs


def test_an_epochs_order_whatever_is_skipped() -> None:
    sampler = Sampler([7, 4], shuffle=True, seed=3, skip=5)
    stream = Sampler([7, 4], shuffle=True, seed=3).indices(0, 33).samples.reshape(3, 11)
    for epoch, expected in enumerate(stream):
        np.testing.assert_array_equal(sampler.order(epoch), expected)
        some = np.array([1, 2, 6, 7, 10])
        np.testing.assert_array_equal(sampler.order(epoch, some), expected[np.isin(expected, some)])
    assert Sampler([3, 2]).order(4).tolist() == [0, 1, 2, 3, 4]
    assert Sampler([3, 2]).order(4, np.array([1, 3])).tolist() == [1, 3]
