"""What tests read in comparisons of many ranks with one process."""

from __future__ import annotations

from bpt.apps.check.comparison import Compared, TensorDifference


def gradient_in(line: Compared) -> TensorDifference:
    """The difference of a parameter that has a gradient."""
    assert line.gradient is not None
    return line.gradient
