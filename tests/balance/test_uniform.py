from __future__ import annotations

import pytest

from bpt.balance import Uniform
from bpt.share import Share


@pytest.mark.parametrize(
    ("total", "ranks", "counts"),
    [(8, 2, [4, 4]), (7, 2, [4, 3]), (7, 4, [2, 2, 2, 1]), (2, 4, [1, 1, 0, 0]), (5, 1, [5]), (0, 2, [0, 0])],
)
def test_shares_differ_by_at_most_one_and_tile_the_batch(total: int, ranks: int, counts: list[int]) -> None:
    shares = Uniform().shares(total, ranks)
    assert shares == tuple(Share(sum(counts[:rank]), counts[rank], total) for rank in range(ranks))
