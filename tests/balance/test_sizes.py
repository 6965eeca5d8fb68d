from __future__ import annotations

import pytest

from bpt.balance.sizes import ladder


@pytest.mark.parametrize(
    ("batch", "ranks", "sizes"),
    [
        (64, 2, [1, 2, 4, 8, 16, 32]),
        (100, 1, [1, 2, 4, 7, 13, 25, 50, 100]),
        (100, 3, [1, 2, 3, 5, 9, 17, 34]),
        (3, 8, [1]),
    ],
)
def test_from_one_to_the_even_share(batch: int, ranks: int, sizes: list[int]) -> None:
    assert ladder(batch, ranks) == sizes
