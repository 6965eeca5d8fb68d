"""VGG-16's fc6 in two shards: each rank takes little more than half of the memory that one process takes for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.mpirun import mpirun, needs_mpi

RANKS = Path(__file__).with_name("fc_memory_ranks.py")
SHARE = 0.55


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("side", [3, 7])  # 7: fc6 itself, 25088 inputs
def test_a_rank_holds_its_slice_only(side: int, tmp_path: Path) -> None:
    def peaks(ranks: int, parallel: str) -> list[int]:
        done = mpirun(ranks, [sys.executable, str(RANKS), str(tmp_path), str(side), parallel], timeout=120)
        assert done.returncode == 0, done.stderr
        return [int(word) for word in done.stdout.split()]

    (alone,) = peaks(1, "")
    weights = 4 * 4096 * 512 * side * side
    assert alone > 3 * weights  # with the gradient and the momentum
    shards = peaks(2, "num_shards: 2")
    assert max(shards) <= SHARE * alone, [shard / alone for shard in shards]
