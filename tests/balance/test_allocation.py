from __future__ import annotations

import pytest

from bpt.balance.allocation import Allocation, deal, nothing, size


def test_runs_are_dealt_out_in_order() -> None:
    assert deal([(0, 10)], [3, 0, 7]).runs == (((0, 3),), (), ((3, 10),))
    # 8 samples in three runs, cut after 3 and after 4.
    assert deal([(0, 2), (10, 15), (20, 21)], [3, 1, 4]).runs == (((0, 2), (10, 11)), ((11, 12),), ((12, 15), (20, 21)))
    assert deal([], [0, 0]) == nothing(2)


@pytest.mark.parametrize("counts", [[3], [3, 0], [4, 5]])
def test_every_sample_is_dealt_out(counts: list[int]) -> None:
    with pytest.raises(AssertionError, match="more samples than counts"):
        deal([(0, 4), (5, 20)], counts)


def test_counts() -> None:
    assert size([(0, 2), (10, 15)]) == 7
    assert Allocation((((0, 2), (10, 15)), (), ((2, 3),))).counts == (7, 0, 1)


def test_what_comes_along_is_appended_and_neighbours_are_joined() -> None:
    first = Allocation((((0, 3),), ((3, 4),), ()))
    more = Allocation((((4, 6), (9, 10)), ((6, 7),), ((7, 9),)))
    assert first.plus(more).runs == (((0, 3), (4, 6), (9, 10)), ((3, 4), (6, 7)), ((7, 9),))
    assert Allocation((((0, 3),),)).plus(Allocation((((3, 5), (8, 9)),))).runs == (((0, 5), (8, 9)),)
    assert first.plus(nothing(3)) == nothing(3).plus(first) == first


def test_without() -> None:
    assert Allocation((((0, 3),), ((3, 4),), ((4, 5),))).without([0, 2]).runs == ((), ((3, 4),), ())
