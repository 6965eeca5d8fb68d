"""What ranks bring to a check: easily told apart, and worked out from rank and size."""

from __future__ import annotations

import numpy as np

from bpt.system.comm.base import Buffer

SUMMED = (np.float32, np.float64, np.int32, np.int64, np.uint8)
MOVED = (*SUMMED, np.float16, np.bool_, np.int8)


def counts_of(size: int) -> list[int]:
    """Uneven counts, zeros among them: 3, 0, 2, 5."""
    return [3, 0, 2, 5][:size]


def run_of(rank: int, count: int, dtype: type = np.float32) -> Buffer:
    """What ``rank`` contributes: 10 rank + 1, 10 rank + 2, ..."""
    return (10 * rank + 1 + np.arange(count)).astype(dtype)
