"""Areas of a convolution, against counting which rows each filter position touches."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from bpt.execute.task_dag.areas import Area, Rows, area, decompose


def test_eq_12_to_14_by_hand() -> None:
    """H_x = 7, H_f = 3, S = 2, P = 0: three rows, whose areas begin at 0, 2 and 4 and end 3 further on."""
    rows = Rows(size=7, extent=3, stride=2, pad=0)
    assert rows.places == 3
    assert [area(rows, i, i + 1) for i in range(3)] == [Area(i, i + 1, 2 * i, 2 * i + 3, 0, 0) for i in range(3)]
    # With P = 1 a lap of zeros is around: four rows, the first and last of which reach into it.
    rows = Rows(size=7, extent=3, stride=2, pad=1)
    assert rows.places == 4
    assert list(decompose(rows, 2)) == [Area(0, 2, 0, 4, 1, 0), Area(2, 4, 3, 7, 0, 1)]
    assert list(decompose(rows, 1)) == [Area(0, 4, 0, 7, 1, 1)]


def test_an_area_in_the_pad_alone() -> None:
    """size 1, pad 3: the first rows see zeros only."""
    assert area(Rows(size=1, extent=2, stride=1, pad=3), 0, 1) == Area(0, 1, 0, 0, 2, 0)
    assert area(Rows(size=1, extent=2, stride=1, pad=3), 5, 6) == Area(5, 6, 1, 1, 0, 2)


@pytest.mark.parametrize(("size", "extent"), [(5, 1), (5, 5), (8, 3), (13, 3), (13, 5)])
def test_against_counting(size: int, extent: int) -> None:
    for stride, pad, parts in product((1, 2, 3), (0, 1, 4), (1, 2, 3)):
        rows = Rows(size, extent, stride, pad)
        starts = list(range(-pad, size + pad - extent + 1, stride))
        assert rows.places == len(starts)
        if parts > len(starts):
            continue
        areas = list(decompose(rows, parts))
        assert [areas[0].first, *(a.last for a in areas)] == [0, *(a.first for a in areas[1:]), len(starts)]
        for piece in areas:
            touched = [row for start in starts[piece.first : piece.last] for row in (start, start + extent - 1)]
            padded = range(min(touched), max(touched) + 1)
            assert piece.before == sum(row < 0 for row in padded)
            assert piece.after == sum(row >= size for row in padded)
            assert list(range(piece.begin, piece.end)) == [row for row in padded if 0 <= row < size]
        lengths = [a.last - a.first for a in areas]
        assert max(lengths) - min(lengths) <= 1
        assert all(first.last == second.first for first, second in pairwise(areas))
