"""Every layer against the recordings of a real Caffe: tops, diffs, gradients, parameters afterwards."""

from __future__ import annotations

import pytest

from bpt.layers import LAYERS
from tests.golden_cases import GOLDEN, LayerRun, recorded

KINDS = sorted(path.stem for path in (GOLDEN / "layers").glob("*.json"))
CASES = [
    pytest.param(kind, case, id=f"{kind}-{case['id']}")
    for kind in KINDS
    if kind in LAYERS
    for case in recorded(kind)[0]
    if case["id"] != "01_train_random"  # Dropout's mask is random; see test_dropout.py
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_layer_is_caffes(kind: str, case: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "layers")  # InfogainLoss names the file of its matrix by a relative path
    LayerRun.prepare(kind, case).check()
