"""The mean of a maximum, by what is known of normal distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from bpt.perf.forecast.expected_max import expected_max


@pytest.mark.parametrize(
    ("moments", "noise", "expected"),
    [
        ([3.0, 2.0], [0.0, 0.0], 3.0),
        ([3.0], [0.1], 3.0),
        ([2.0, 2.0], [0.1, 0.1], 2.0 + 0.2 / math.sqrt(math.pi)),
        ([2.0, 2.0, 2.0], [0.1] * 3, 2.0 + 0.2 * 1.5 / math.sqrt(math.pi)),
        ([2.0], [0.1] * 2, 2.0 + 0.2 / math.sqrt(math.pi)),  # one moment of two ranks
        ([2.0, 2.0], [0.1, 0.0], 2.0 + 0.2 / math.sqrt(2 * math.pi)),  # one that varies not
        # Clark 1961: 1 Φ(α) + 0.9 Φ(-α) + a φ(α), a = sqrt(0.1² + 0.2²), α = 0.1 / a
        ([1.0, 0.9], [0.1, 0.2 / 0.9], 1.047981),
        ([9.0, 1.0], [0.01, 0.1], 9.0),  # too early ever to be the last
        ([0.0, 0.0], [0.1, 0.1], 0.0),
    ],
)
def test_the_latest(moments: Sequence[float], noise: Sequence[float], expected: float) -> None:
    assert expected_max(np.array(moments), np.array(noise)) == pytest.approx(expected, rel=2e-4)
