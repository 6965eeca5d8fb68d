"""Chunks by the paper's rule (CGDP, section 4.2)."""

from __future__ import annotations

import pytest

from bpt.schedule.chunks import chunks, describe


@pytest.mark.parametrize(
    ("layers", "size", "expected"),
    [
        (6, 1, (1, 1, 1, 1, 1, 1)),
        (6, 2, (2, 2, 1, 1)),  # 2 divides 6: 6/2 - 1 chunks of 2, then 2 of 1
        (6, 3, (3, 1, 1, 1)),
        (6, 4, (4, 1, 1)),  # 4 does not: 1 chunk of 4, what is left as chunks of 1
        (6, 5, (5, 1)),
        (6, 6, (1, 1, 1, 1, 1, 1)),  # 6/6 - 1 = 0 chunks of 6
        (6, 7, (6,)),  # beyond the paper
        (6, 100, (6,)),
        (152, 9, (9,) * 16 + (1,) * 8),  # Resnet-152 with the size that the paper found
        (152, 20, (20,) * 7 + (1,) * 12),
        (1, 1, (1,)),
        (0, 1, ()),
        (0, 5, ()),
    ],
)
def test_rule(layers: int, size: int, expected: tuple[int, ...]) -> None:
    assert chunks(layers, size) == expected
    assert sum(expected) == layers


@pytest.mark.parametrize("layers", range(1, 40))
def test_layers_stand_alone_at_the_end_only(layers: int) -> None:
    for size in range(2, layers + 1):
        lengths = chunks(layers, size)
        large = layers // size - (layers % size == 0)
        assert lengths[:large] == (size,) * large
        assert set(lengths[large:]) == {1}
        assert sum(lengths) == layers


@pytest.mark.parametrize(
    ("lengths", "text"), [((10, 10, 1, 1, 1), "2x10 3x1"), ((59, 37, 1), "1x59 1x37 1x1"), ((6,), "1x6"), ((), "none")]
)
def test_description(lengths: tuple[int, ...], text: str) -> None:
    assert describe(lengths) == text
