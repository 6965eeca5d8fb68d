"""Shares of a batch: they tile it as a ring, and over the epochs each rank gets all of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bpt.graph.share import ShardRotation, Share, rotation, whole_batch


def rows(share: Share, shift: int = 0) -> list[int]:
    return [row for begin, end in share.runs(shift) for row in range(begin, end)]


@pytest.mark.parametrize("shift", [0, 1, 3, 7, 8, 11])
def test_shares_tile_the_batch(shift: int) -> None:
    shares = [Share(0, 3, 8), Share(3, 0, 8), Share(3, 4, 8), Share(7, 1, 8)]
    assert [row for share in shares for row in rows(share, shift)] == [(row + shift) % 8 for row in range(8)]


def test_runs_by_hand() -> None:
    assert Share(2, 3, 8).runs() == ((2, 5),)
    assert Share(2, 3, 8).runs(3) == ((5, 8),)
    assert Share(2, 3, 8).runs(5) == ((7, 8), (0, 2))
    assert Share(2, 0, 8).runs(6) == ()
    assert Share(0, 8, 8).runs(3) == ((3, 8), (0, 3))
    assert whole_batch(4).runs() == ((0, 4),)
    assert whole_batch(0).runs(2) == ()


def test_shift_by_hand() -> None:
    assert [Share(0, 1, 8).shift(part) for part in (0.0, 0.124, 0.125, 0.99)] == [0, 0, 1, 7]


def test_rotation() -> None:
    # Multiples of the golden section 0.618034, without the whole.
    assert rotation(0) == 0
    assert [round(rotation(epoch), 6) for epoch in (1, 2, 3, 4)] == [0.618034, 0.236068, 0.854102, 0.472136]
    # No part of the ring is left out for long.
    for epochs in (5, 20, 100):
        places = sorted(rotation(epoch) for epoch in range(epochs))
        assert max(b - a for a, b in pairwise([*places, 1])) < 2 / epochs


def test_turned_once_an_epoch_of_the_first_data_layer() -> None:
    turning = ShardRotation(batch=4, epoch=10)
    # Passes 0, 1, 2 begin at samples 0, 4, 8; 3, 4 at 12, 16; 5 at 20.
    assert [turning.part(passes) for passes in range(6)] == [rotation(epoch) for epoch in (0, 0, 0, 1, 1, 2)]
    assert ShardRotation(batch=1, epoch=0).part(1000) == 0


def test_parts_by_hand() -> None:
    """Of the third to the ninth of ten: 3, 2 and 2."""
    share = Share(2, 7, 10)
    assert [share.part(number, 3) for number in range(3)] == [Share(2, 3, 10), Share(5, 2, 10), Share(7, 2, 10)]
    assert share.part(0, 1) == share
    assert [Share(4, 2, 10).part(number, 3).count for number in range(3)] == [1, 1, 0]
    assert Share(4, 0, 10).part(1, 2) == Share(4, 0, 10)


@pytest.mark.parametrize("count", range(9))
@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("shift", [0, 3])
def test_parts_tile_the_share(count: int, parts: int, shift: int) -> None:
    """In its order, nearly equal, the longer ones first; also where the share goes over the end of the ring."""
    share = Share(5, count, 8)
    cut = [share.part(number, parts) for number in range(parts)]
    assert [row for part in cut for row in rows(part, shift)] == rows(share, shift)
    counts = [part.count for part in cut]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] - counts[-1] <= 1
    assert {part.total for part in cut} == {8}
