"""Sampler: the order of samples."""

from __future__ import annotations

import numpy as np

from bpt.data.sampler import Sampler


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
