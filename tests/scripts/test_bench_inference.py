"""``scripts/bench inference``: all sides compute the same net, and the table says how they compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scripts.benches import inference
from scripts.benches.harness.launch import PROTOTXT
from scripts.benches.inference import difference, make_side, prepare
from tests.support.bench_arguments import parse

# Also what the nets named in it need: a Split, BatchNorm and Scale, Eltwise, pooling of both kinds.
SMALL = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 9 dim: 9 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 8 kernel_size: 3 pad: 1 bias_term: false weight_filler { type: "msra" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv"
        scale_param { bias_term: true filler { type: "uniform" min: 0.5 max: 2 } bias_filler { value: 0.3 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 3 alpha: 0.5 } }
layer { name: "sum" type: "Eltwise" bottom: "conv" bottom: "norm" top: "sum" }
layer { name: "max" type: "Pooling" bottom: "sum" top: "max" pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "ave" type: "Pooling" bottom: "max" top: "ave" pooling_param { pool: AVE kernel_size: 4 } }
layer { name: "ip" type: "InnerProduct" bottom: "ave" top: "ip"
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } bias_filler { value: 0.1 } } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the sides read of SMALL, with a batch of 2."""
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "deploy.prototxt").write_text(SMALL)
    monkeypatch.setattr(inference, "PROTOTXT", tmp_path)
    prepare("small", 2, tmp_path, onnx=False)
    return tmp_path


@pytest.mark.parametrize("kind", ["eager", "channels_last", "module", "bpt_test"])
def test_the_sides_compute_the_same(kind: str, folder: Path) -> None:
    expected = make_side("bpt", folder, 1)()
    output = make_side(kind, folder, 1)()
    assert output.shape == (2, 5)
    np.testing.assert_allclose(output.sum(1), 1, rtol=1e-5)
    assert np.abs(output[0] - output[1]).max() > 1e-3  # they see the images
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-6)


def test_differences_are_relative_to_the_largest_element() -> None:
    expected = np.array([[4.0, -8.0]], np.float32)
    assert difference(np.array([[4.0, -6.0]], np.float32), expected) == 0.25
    assert difference(np.array([[4.0]], np.float32), expected) == float("inf")


def test_every_net_is_there() -> None:
    for name in (*inference.NETS, *inference.MORE):
        assert (PROTOTXT / name / "deploy.prototxt").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # compilers warn of what torch itself does
@pytest.mark.parametrize("kind", ["compiled", "frozen", "onnxruntime"])
def test_compiled_and_exported_nets_compute_the_same(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "frozen":
        monkeypatch.setattr("torch._inductor.config.freezing", False)  # and so it is again afterwards
    if kind == "onnxruntime":
        prepare("small", 2, folder, onnx=True)
    try:
        np.testing.assert_allclose(make_side(kind, folder, 1)(), make_side("bpt", folder, 1)(), rtol=1e-4, atol=1e-6)
    finally:
        torch.compiler.reset()


@pytest.mark.slow
def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--nets lenet --batches 2 --rounds 1 --threads 1 --others eager,channels_last"
    inference.run(parse(inference, *words.split()))
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:6] == ["net", "batch", "eager", "ms", "channels_last", "ms"]
    name, batch, eager, channels_last, ours, module, tested, ratio, _, test_ratio, memory, won, apart = row.split()
    assert (name, batch) == ("lenet", "2")
    best = min(float(eager), float(channels_last))
    assert float(ratio) == pytest.approx(float(ours) / best, rel=0.1)
    assert float(test_ratio) == pytest.approx(float(tested) / best, rel=0.1)
    assert 0.3 < float(memory) < 3
    times = {"eager;": eager, "channels_last;": channels_last, "bpt;": ours, "module;": module, "bpt_test;": tested}
    assert float(times[won]) == min(map(float, times.values()))
    assert float(apart) < inference.CLOSE
