"""Parts: what of a parameter a rank holds, and who gives what so that it is whole."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import Param
from bpt.graph.part import WHOLE, BlobSlice, Part, holders, slice_bounds


def param(index: int = 3, layer: int = 1, shape: tuple[int, ...] = (7, 4)) -> Param:
    return Param(index, layer, 0, shape, pb.FillerParameter(), "", index, 1.0, 1.0, True)


def sliced(axis: int, start: int, stop: int) -> Part:
    return Part(None, {3: BlobSlice(axis, start, stop)})


def test_a_slice() -> None:
    rows, columns = BlobSlice(0, 2, 5), BlobSlice(1, 0, 2)
    assert rows.shape((7, 4)) == (3, 4)
    assert columns.shape((7, 4, 2)) == (7, 2, 2)
    assert rows.index(2) == (slice(2, 5), slice(None))
    assert columns.index(3) == (slice(None), slice(0, 2), slice(None))


def test_what_a_part_holds() -> None:
    part = Part(frozenset({0, 1}), {3: BlobSlice(1, 1, 4)})
    assert (part.runs(1), part.runs(2)) == (True, False)
    assert (part.holds(param()), part.holds(param(layer=2))) == (True, False)
    assert part.shape_of(param()) == (7, 3)
    assert part.shape_of(param(index=4)) == (7, 4)
    assert part.slice_of(param(index=4)) is None
    assert WHOLE.runs(99)
    assert WHOLE.shape_of(param()) == (7, 4)


def test_who_holds_it_whole_gives_it_alone() -> None:
    assert holders(param(), (WHOLE,)) == ((0, None),)
    assert holders(param(), (WHOLE, WHOLE)) == ((0, None),)
    assert holders(param(), (Part(frozenset()), WHOLE, WHOLE)) == ((1, None),)
    assert holders(param(), (sliced(0, 0, 3), WHOLE)) == ((1, None),)


def test_slices_in_their_order() -> None:
    parts = (sliced(0, 5, 7), Part(frozenset()), sliced(0, 0, 5))
    assert holders(param(), parts) == ((2, BlobSlice(0, 0, 5)), (0, BlobSlice(0, 5, 7)))


def test_empty_slices_give_nothing() -> None:
    parts = (sliced(1, 0, 4), sliced(1, 4, 4), sliced(1, 4, 4))
    assert holders(param(), parts) == ((0, BlobSlice(1, 0, 4)),)
    assert holders(param(shape=(0,)), (sliced(0, 0, 0),)) == ()


@pytest.mark.parametrize(
    "parts",
    [
        (sliced(0, 0, 3), sliced(0, 4, 7)),  # a gap
        (sliced(0, 0, 3), sliced(0, 2, 7)),  # an overlap
        (sliced(0, 0, 3), sliced(0, 3, 6)),  # the end is missing
        (sliced(0, 1, 7),),
        (sliced(0, 0, 3), sliced(1, 3, 7)),  # another axis
        (Part(frozenset()),),  # nobody
    ],
)
def test_slices_that_do_not_tile(parts: tuple[Part, ...]) -> None:
    with pytest.raises(AssertionError, match="parameter 3"):
        holders(param(), parts)


@pytest.mark.parametrize(
    ("extent", "parts", "sizes"),
    [(10, 1, [10]), (10, 2, [5, 5]), (10, 3, [4, 3, 3]), (10, 4, [3, 3, 2, 2]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0])],
)
def test_bounds(extent: int, parts: int, sizes: list[int]) -> None:
    bounds = slice_bounds(extent, parts)
    assert [stop - start for start, stop in bounds] == sizes
    assert bounds[0][0] == 0
    assert bounds[-1][1] == extent
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
