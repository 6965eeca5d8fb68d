"""BatchNorm with five blobs, as NVIDIA's and Intel's Caffe have it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import bpt
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import array_to_raw_blob
from tests.support.one_layer import error_of, one_layer, one_layer_graph, randomise

NVIDIA = "scale_bias: true"
INTEL = "use_weight_bias: true"


def bn(settings: str, more: str = "") -> str:
    return f'type: "BatchNorm" batch_norm_param {{ {settings} }} {more}'


@pytest.mark.parametrize("settings", [NVIDIA, INTEL, "bias_term: false"])
@pytest.mark.parametrize("phase", [pb.TRAIN, pb.TEST])
def test_is_a_batch_norm_and_a_scale(settings: str, phase: int) -> None:
    shape = (4, 3, 2, 5)
    layer = randomise(one_layer(bn(settings), shape, phase=phase))
    plain = one_layer(bn(""), shape, phase=phase)
    scale = one_layer('type: "Scale" scale_param { bias_term: true }', shape)
    with torch.no_grad():
        for one, other in zip(plain.blobs, layer.blobs, strict=False):
            one.copy_(other)
        scale.blobs[0].copy_(layer.blobs[3])
        scale.blobs[1].copy_(layer.blobs[4]) if len(layer.blobs) == 5 else scale.blobs[1].zero_()
    for each in (layer, plain):
        each.train(phase == pb.TRAIN)
    x = torch.rand(shape)
    torch.testing.assert_close(layer(x), scale(plain(x)))


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        (NVIDIA, 5),
        ("scale_filler { value: 2 }", 5),
        ("bias_filler { value: 2 }", 5),
        (INTEL, 5),
        ("filler { value: 2 } bias_filler { value: 2 }", 5),
        ("bias_term: false", 4),
        ("use_weight_bias: false bias_filler { value: 2 }", 3),
        ("engine: MKLDNN", 3),
    ],
)
def test_what_turns_it_on(settings: str, number: int) -> None:
    params = one_layer_graph(bn(settings), (2, 3)).params
    assert [param.learnable for param in params] == [False, False, False, True, True][:number]
    assert error_of(bn(f"{NVIDIA} {INTEL}"), (2, 3)) == (
        "scale_bias is of NVIDIA's Caffe, use_weight_bias of Intel's, which mean different things; keep one"
    )


def test_as_intels_caffe_three_param_are_those_of_a_layer_of_bvlcs() -> None:
    assert len(one_layer_graph(bn(INTEL, "param { lr_mult: 0 } " * 3), (2, 3)).params) == 3


def test_fillers() -> None:
    blobs = one_layer(bn("scale_filler { value: 2 } bias_filler { value: 3 }"), (2, 1)).blobs[3:]
    assert [blob.tolist() for blob in blobs] == [[2], [3]]
    assert [blob.tolist() for blob in one_layer(bn(INTEL), (2, 1)).blobs[3:]] == [[1], [0]]


def test_nvidias_statistics_are_averages() -> None:
    # Batches (1, 3) and (4, 8): means 2 and 6, unbiased variances 2 and 8. Fraction 0.75: 0.75 · 2 + 0.25 · 6 = 3, and
    # 0.75 · 2 + 0.25 · 8 = 3.5.
    layer = one_layer(bn(f"{NVIDIA} moving_average_fraction: 0.75 eps: 0"), (2, 1))
    for batch in ([[1.0], [3.0]], [[4.0], [8.0]]):
        layer(torch.tensor(batch))
    assert [blob.tolist() for blob in layer.blobs[:3]] == [[3.0], [3.5], [1.0]]
    layer.eval()
    torch.testing.assert_close(layer(torch.tensor([[3 + 3.5**0.5]])), torch.tensor([[1.0]]))


@pytest.mark.parametrize("number", [pb.FLOAT16, pb.FLOAT])
def test_nvidias_weights_both_ways(number: int, tmp_path: Path) -> None:
    """As its Caffe stores them: raw numbers, in half precision, too."""
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
        f'layer {{ name: "bn" bottom: "x" top: "y" {bn(NVIDIA + " eps: 0")} }}'
    )
    blobs: list[list[float]] = [[0.5, 1, 2], [4, 1, 0.25], [1], [2, 2, 2], [0, 1, -1]]
    stored = pb.LayerParameter(name="bn", type="BatchNorm", blobs=[array_to_raw_blob(blob, number) for blob in blobs])
    (tmp_path / "nv.caffemodel").write_bytes(pb.NetParameter(name="n", layer=[stored]).SerializeToString())
    net = bpt.Net(tmp_path / "net.prototxt", bpt.TEST, weights=tmp_path / "nv.caffemodel")
    assert [blob.data.tolist() for blob in net.params["bn"]] == blobs
    y = net.forward(x=np.ones((2, 3)))["y"]
    np.testing.assert_allclose(y[0], [0.5 / 2 * 2, 0 + 1, -1 / 0.5 * 2 - 1])
    net.save(tmp_path / "own.caffemodel")
    written = pb.NetParameter.FromString((tmp_path / "own.caffemodel").read_bytes()).layer[1]
    assert [list(blob.data) for blob in written.blobs] == blobs
    assert written.batch_norm_param.scale_bias
