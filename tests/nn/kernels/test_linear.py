"""Products by oneDNN, as torch's tools record them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from bpt.nn.kernels.linear import SMALL, linear


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit is on its way out
def test_a_trace_of_a_large_product_can_be_saved(tmp_path: Path) -> None:
    x, weight = torch.randn(64, 512), torch.randn(1024, 512)
    assert x.numel() * len(weight) >= SMALL
    torch.jit.save(
        torch.jit.trace(lambda rows: linear(rows, weight, None), x, check_trace=False), str(tmp_path / "product.pt")
    )
    saved = torch.jit.load(str(tmp_path / "product.pt"))
    assert_close(saved(x), x @ weight.t(), rtol=1e-5, atol=1e-4)
