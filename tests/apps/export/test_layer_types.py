"""Each layer type is exported and checked by running both, in place, too, or is refused by its name and a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.apps.export.export_net import ExportRequest, export_net
from bpt.base.errors import UserError
from bpt.nn.layers import LAYERS
from bpt.nn.layers.base import DataLayer
from tests.apps.export.layer_nets import NETS, TYPES, Sample
from tests.support.pycaffe_texts import inputs, layer, write

ELSEWHERE = {  # tested with the nets that they need
    "DetectionOutput": "tests/apps/export/test_export_net.py",
    "Python": "what a user's class does is unknown",
    "HDF5Output": "writes a file",
    "MultiBoxLoss": "matches boxes by a loop over the objects of the data",
}
REFUSED = {
    "BoxAnnotatorOHEM": "ranks regions by a loop over images",
    "DetectionEvaluate": "counts by a loop over detections",
    "RegionLoss": "matches boxes by a loop over the objects of the data",
}
"""Types that are refused, and why: training and evaluation of detectors loop over the data."""
QUICK_PT2 = ("ReLU", "SoftmaxWithLoss", "Accuracy", "ArgMax", "Dropout", "Parameter", "HingeLoss")
QUICK_ONNX = ("ArgMax", "Dropout", "SoftmaxWithLoss")

CASES = [
    pytest.param(kind, sample, in_place, end,
                 marks=() if kind in quick and sample is samples[-1] else pytest.mark.slow,
                 id=f"{kind}-{place}{'-in_place' * in_place}{end}")
    for end, quick in ((".pt2", QUICK_PT2), (".onnx", QUICK_ONNX))
    for kind, samples in NETS.items()
    for place, sample in enumerate(samples)
    for in_place in ((False, True) if sample.in_place else (False,))
]  # fmt: skip


def test_all_types_have_a_net() -> None:
    data = {kind for kind in TYPES if issubclass(LAYERS[kind], DataLayer)}
    assert set(TYPES) == NETS.keys() | ELSEWHERE.keys() | data


@pytest.mark.parametrize(("kind", "sample", "in_place", "end"), CASES)
def test_export(kind: str, sample: Sample, in_place: bool, end: str, tmp_path: Path) -> None:
    if end == ".onnx":
        pytest.importorskip("onnxruntime")
    path, out = write(tmp_path, sample.text(kind, in_place)), tmp_path / f"out{end}"
    if (kind in REFUSED and (end == ".onnx" or kind != "BoxAnnotatorOHEM")) or sample.refused:
        with pytest.raises(UserError, match=r'"L"' if not sample.refused else sample.refused):
            list(export_net(ExportRequest(path, str(out))))
        assert not out.exists()
    else:
        *_, last = export_net(ExportRequest(path, str(out)))
        assert last.startswith("checked on random inputs")


@pytest.mark.parametrize("end", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["a,b;c", "a/b", 'a\\"b', "a b", "é", "x", "clone", "class", "None", "a\\001b"])
def test_names(name: str, end: str, tmp_path: Path) -> None:
    """A layer and its top may have any name."""
    if end == ".onnx":
        pytest.importorskip("onnxruntime")
    ip = 'inner_product_param { num_output: 2 weight_filler { type: "gaussian" } }'
    text = inputs(x=(2, 3)) + layer("InnerProduct", "x", "h", ip, name=name)
    text += layer("TanH", "h", "OUT", name=f"{name}.2").replace("OUT", f"{name}_")
    *_, last = export_net(ExportRequest(write(tmp_path, text), str(tmp_path / f"out{end}")))
    assert last.startswith("checked on random inputs")


def test_a_blob_without_a_name(tmp_path: Path) -> None:
    """ONNX names its inputs and outputs."""
    pytest.importorskip("onnxruntime")
    text = 'layer { name: "x" type: "Input" top: "" input_param { shape { dim: 2 dim: 3 } } }'
    text += 'layer { name: "h" type: "TanH" bottom: "" top: "h" }'
    with pytest.raises(UserError, match="a blob without a name"):
        list(export_net(ExportRequest(write(tmp_path, text), str(tmp_path / "out.onnx"))))
