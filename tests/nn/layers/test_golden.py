"""Every layer against the recordings of a real Caffe and its forks: tops, diffs, gradients, parameters afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bpt.config.precision import FLOAT64
from bpt.nn.layers import LAYERS
from tests.support.golden_cases import LayerRun, recorded, recorded_kinds
from tests.support.paths import GOLDEN

EXCEPT = {
    "Dropout-01_train_random",  # its mask is random; see test_dropout.py
    "BN-02_psp_test",  # PSPNet's fields in a fork that has SegNet's layer; see test_bn.py
    "ROIAlign-00_basic",  # some of it was read beyond a blob's memory; see test_roi_align.py
}
CASES = [
    pytest.param(kind, case, id=f"{kind}-{case['id']}")
    for kind in recorded_kinds()
    if kind in LAYERS
    for case in recorded(kind)[0]
    if f"{kind}-{case['id']}" not in EXCEPT
]
SINGLE = {
    "TanH-01_inplace_large"  # where tanh(x) is almost 1, Caffe's 1 - tanh(x)² is rounding
}


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_layer_is_caffes(kind: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "layers")  # InfogainLoss names the file of its matrix by a relative path
    LayerRun.prepare(kind, case).check()


@pytest.mark.parametrize(("kind", "case"), [case for case in CASES if case.id not in SINGLE])
def test_layer_computes_in_double_precision(kind: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every blob, diff, parameter and gradient; with the numbers of Caffe, which recorded in single precision."""
    monkeypatch.chdir(GOLDEN / "layers")
    run = LayerRun.prepare(kind, case, FLOAT64)
    run.check()
    blobs = [*run.operator.values.values(), *run.operator.diffs.values()]
    params = list(run.operator.net.parameters())
    gradients = [param.grad for param in params if param.grad is not None]
    assert {tensor.dtype for tensor in (*blobs, *params, *gradients)} == {torch.float64}
