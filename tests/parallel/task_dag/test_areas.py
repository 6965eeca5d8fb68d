"""Areas of a convolution, against counting which places each filter position touches."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from bpt.parallel.task_dag.areas import AreaSpan, Axis, decompose, grid_of, span


def test_eq_12_to_14_by_hand() -> None:
    """H_x = 7, H_f = 3, S = 2, P = 0: three rows, whose areas begin at 0, 2 and 4 and end 3 further on."""
    rows = Axis(size=7, extent=3, stride=2, pad=0)
    assert rows.places == 3
    assert [span(rows, i, i + 1) for i in range(3)] == [AreaSpan(i, i + 1, 2 * i, 2 * i + 3, 0, 0) for i in range(3)]
    # With P = 1 a lap of zeros is around: four rows, the first and last of which reach into it.
    rows = Axis(size=7, extent=3, stride=2, pad=1)
    assert rows.places == 4
    first, second = AreaSpan(0, 2, 0, 4, 1, 0), AreaSpan(2, 4, 3, 7, 0, 1)
    assert decompose([rows], (2,)) == [(first,), (second,)]
    assert decompose([rows], (1,)) == [(AreaSpan(0, 4, 0, 7, 1, 1),)]
    # Rows and columns: r_begin and c_begin of each task, K_C = 4 x 4 in four of them.
    assert decompose([rows, rows], (2, 2)) == [(first, first), (first, second), (second, first), (second, second)]


def test_an_area_in_the_pad_alone() -> None:
    """size 1, pad 3: the first rows see zeros only."""
    assert span(Axis(size=1, extent=2, stride=1, pad=3), 0, 1) == AreaSpan(0, 1, 0, 0, 2, 0)
    assert span(Axis(size=1, extent=2, stride=1, pad=3), 5, 6) == AreaSpan(5, 6, 1, 1, 0, 2)


@pytest.mark.parametrize(("size", "extent"), [(5, 1), (5, 5), (8, 3), (13, 3), (13, 5)])
def test_against_counting(size: int, extent: int) -> None:
    for stride, pad, parts in product((1, 2, 3), (0, 1, 4), (1, 2, 3)):
        rows = Axis(size, extent, stride, pad)
        starts = list(range(-pad, size + pad - extent + 1, stride))
        assert rows.places == len(starts)
        if parts > len(starts):
            continue
        areas = [piece for (piece,) in decompose([rows], (parts,))]
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


@pytest.mark.parametrize(
    ("height", "width", "parts", "expected"),
    [
        # 3 x 3 filters with P = 1, so that the top is as large as the bottom; the longest of two tasks computes half of
        # it either way. A square: the two read as much, and rows lie together in memory.
        (12, 12, 2, (2, 1)),
        (12, 12, 1, (1, 1)),
        # Four tasks: 3 x 12 = 36 places as 6 x 6, but (3 + 2) (12 + 2) = 70 are read for them, or 8 x 8 = 64.
        (12, 12, 4, (2, 2)),
        # Flat: two rows of 128 columns read (4 + 2) (128 + 2) = 780, two columns of 8 rows (8 + 2) (64 + 2) = 660.
        (8, 128, 2, (1, 2)),
        (1, 9, 3, (1, 3)),  # there are no rows to divide
        (1, 9, 4, (1, 3)),  # the longest of four has 3 places, too
        # The longest of three spans of 7 rows has 3 of them, 21 places; 4 x 7 = 28 with two.
        (7, 7, 3, (3, 1)),
        (2, 2, 9, (2, 2)),  # K_C = 4 tasks at most (Eq. 13)
    ],
)
def test_rows_and_columns_by_the_longest_task(height: int, width: int, parts: int, expected: tuple[int, int]) -> None:
    assert grid_of([Axis(height, 3, 1, 1), Axis(width, 3, 1, 1)], parts) == expected


def test_one_axis_has_rows_alone() -> None:
    assert grid_of([Axis(11, 3, 1, 1)], 4) == (4,)
