"""Differences of tensors by hand, and the table that ``bpt check`` makes of them."""

from __future__ import annotations

import pytest
import torch

from bpt.apps.check.comparison import Compared, TensorDifference, result_lines


def test_differences_by_hand() -> None:
    difference = TensorDifference.of(torch.tensor([1.0, -4.5, 0.0]), torch.tensor([1.0, -4.0, 0.25]))
    assert difference == TensorDifference(0.5, 4.0)
    assert difference.relative == 0.125
    assert TensorDifference.of(torch.zeros(2), torch.zeros(2)).relative == 0
    assert TensorDifference.of(torch.tensor([1e-9]), torch.zeros(1)).relative == float("inf")
    assert TensorDifference.of(torch.zeros(0, 3), torch.zeros(0, 3)).relative == 0
    # In double: 2²⁴ + 1 is no float32.
    assert TensorDifference.of(torch.tensor([2.0**24 + 1], dtype=torch.float64), torch.tensor([2.0**24])).absolute == 1


@pytest.mark.parametrize(("ours", "theirs"), [(float("nan"), 1.0), (1.0, float("nan")), (float("nan"), float("nan"))])
def test_nan_is_never_equal(ours: float, theirs: float) -> None:
    difference = TensorDifference.of(torch.tensor([ours, 0.0]), torch.tensor([theirs, 0.0]))
    assert difference.absolute == float("inf")
    assert not Compared("a", difference, TensorDifference(0, 1)).within(1.0)


def test_lines() -> None:
    small, large, zero = TensorDifference(2e-7, 2.0), TensorDifference(0.5, 1.0), TensorDifference(0.0, 0.0)
    lines = [
        Compared("conv1/0", small, zero),
        Compared("bias", large, small, "its gradient is 0"),
        Compared("ip/0", small, large),
    ]
    assert [line.within(1e-7) for line in lines] == [True, True, False]
    assert list(result_lines(lines, 1e-7)) == [
        "parameter  gradient: absolute  relative  weight: absolute  relative",
        "conv1/0               2.0e-07   1.0e-07           0.0e+00   0.0e+00        ok",
        "bias                  5.0e-01   5.0e-01           2.0e-07   1.0e-07  excepted",
        "ip/0                  2.0e-07   1.0e-07           5.0e-01   5.0e-01   DIFFERS",
        "bias is excepted: its gradient is 0",
    ]
