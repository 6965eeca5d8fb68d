"""One picture, one net, one preprocessing: everything that is asked about a picture gives the same class and score."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import bpt
from bpt.apps.export.export_net import ExportRequest, export_net
from bpt.apps.export.random_inputs import RandomInputs
from bpt.apps.pictures.fed_net import fed_net
from bpt.apps.pictures.image_input import image_input
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.transform import write_mean
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.train.state import save_weights, write_preprocessing
from tests.support.commands import out_of
from tools import extract_features

Scores = NDArray[np.float64]
WEIGHTS = "snap_iter_7.caffemodel"
TRAINED = """
layer { name: "data" type: "ImageData" top: "data" top: "label" transform_param { %s }
  image_data_param { source: "list.txt" batch_size: 1 %s } }
"""
DEPLOY = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: %d dim: %d dim: %d } } }
"""
BODY = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 5 kernel_size: 3
  weight_filler { type: "gaussian" std: 0.05 } bias_filler { type: "gaussian" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 4
  weight_filler { type: "gaussian" std: 0.02 } bias_filler { type: "gaussian" } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
# Of the transformation, of the list, and the input's shape. The picture is of 30 rows and 21 columns.
CASES = {
    "scale and mean": ("mean_value: 127.5 scale: 0.0078125", "new_height: 12 new_width: 10", (3, 12, 10)),
    "mean of each channel, crop": (
        "crop_size: 8 mean_value: 104 mean_value: 117 mean_value: 123 scale: 0.02",
        "new_height: 12 new_width: 10",
        (3, 8, 8),
    ),
    "crop of the picture as it is": ("crop_size: 16 scale: 0.01", "", (3, 16, 16)),
    "gray": ("scale: 0.00390625", "is_color: false new_height: 9 new_width: 9", (1, 9, 9)),
    "mean image": ('mean_file: "mean.binaryproto" crop_size: 8', "new_height: 12 new_width: 10", (3, 8, 8)),
}


@pytest.fixture(params=CASES)
def expected(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scores]:
    """What a test of the trained net makes of the picture: the scores of its classes.

    The net's deploy text, its weights and its record lie in the current folder.
    """
    monkeypatch.chdir(tmp_path)
    transform, listed, shape = CASES[request.param]
    rng = np.random.default_rng(3)
    Image.fromarray(rng.integers(0, 256, (30, 21, 3), np.uint8)).save("p.png")
    write_mean("mean.binaryproto", rng.uniform(90, 140, (3, 12, 10)).astype(np.float32))
    Path("list.txt").write_text("p.png 2\n")
    Path("trained.prototxt").write_text(TRAINED % (transform, listed) + BODY)
    Path("deploy.prototxt").write_text(DEPLOY % shape + BODY)
    core = Net(build_graph_of(file_plan("trained.prototxt", pb.TEST)))
    save_weights(core, WEIGHTS)
    data = core.layers[0]
    recorded = data.preprocessing(data.spec)  # type: ignore[operator]
    assert isinstance(recorded, pb.ImagePreprocessing)
    write_preprocessing("snap", recorded)
    core.close()
    with bpt.Net("trained.prototxt", bpt.TEST, weights=WEIGHTS) as net:
        net.forward()
        yield net.blobs["ip"].data[0].astype(np.float64)


def softmax(scores: Scores) -> Scores:
    exponents = np.exp(scores - scores.max())
    probabilities: Scores = exponents / exponents.sum()
    return probabilities


def of_classify(model: str, out: Callable[..., str]) -> Scores:
    (line,) = out("classify", "--model", model, "--weights", WEIGHTS, "--json", "--top=4", "p.png").splitlines()
    found = {each["class"]: each["probability"] for each in json.loads(line)["classes"]}
    return np.array([found[number] for number in range(4)])


def of_explain(model: str, out: Callable[..., str]) -> Scores:
    told = out("explain", "--model", model, "--weights", WEIGHTS, "--input=p.png", "--output=cam")
    rows = re.findall(r"^ +(\d) +\S+ +(\S+)", told, re.MULTILINE)
    assert "Z_SCORE" not in told
    return np.array([float(value) for _, value in sorted(rows)])


def of_net(model: str, out: Callable[..., str]) -> Scores:
    with bpt.Net(model, bpt.TEST, weights=WEIGHTS) as net:
        [answer] = net.classify("p.png", top=4)
        by_class = {guess.number: guess.value for guess in answer.best}
        image = net.preprocess("p.png")
        if model == "deploy.prototxt":
            prob = net.forward(data=image)["prob"][0].astype(np.float64)
            np.testing.assert_allclose(prob, [by_class[number] for number in range(4)], atol=1e-6)
    return np.array([by_class[number] for number in range(4)])


def of_module(model: str, out: Callable[..., str]) -> Scores:
    image = bpt.load_module(model, WEIGHTS).preprocess("p.png")  # type: ignore[operator]
    with torch.no_grad():
        prob: Scores = bpt.load_module("deploy.prototxt", WEIGHTS)(image)[0].double().numpy()
    return prob


def of_features(model: str, out: Callable[..., str]) -> Scores:
    assert extract_features.main([WEIGHTS, "trained.prototxt", "prob", "db", "1", "lmdb"]) == 0
    environment = lmdb.open("db", readonly=True, lock=False)
    with environment.begin() as transaction:
        ((_, value),) = transaction.cursor()
        found = np.array(pb.Datum.FromString(value).float_data, np.float64)
    environment.close()
    return found


@pytest.mark.parametrize(
    ("ask", "model"),
    [
        *(
            (ask, model)
            for ask in (of_classify, of_explain, of_net)
            for model in ("deploy.prototxt", "trained.prototxt")
        ),
        (of_module, "deploy.prototxt"),
        (of_features, "trained.prototxt"),
    ],
)
def test_all_give_the_same(
    expected: Scores, ask: Callable[..., Scores], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask(model, partial(out_of, capsys))
    np.testing.assert_allclose(found, softmax(expected), atol=2e-5)  # explain tells five digits


def test_detectors_and_exports_read_the_same_record(expected: Scores) -> None:
    """What PictureNet, by which classify and detect run, is fed; and what an export is checked on."""
    net = fed_net(file_plan("deploy.prototxt", pb.TEST))
    prepare = image_input(net, [WEIGHTS])
    with bpt.Net("deploy.prototxt", bpt.TEST, weights=WEIGHTS) as own:
        np.testing.assert_array_equal(prepare(["p.png"]).input, own.preprocess("p.png"))
    lines = list(export_net(ExportRequest("deploy.prototxt", "out.pt2", (WEIGHTS,))))
    assert f"random pictures as data: {prepare}" in lines
    (batch,) = RandomInputs(net.graph, "data", prepare.random).batch(3)
    record = prepare._param.transform_param
    assert batch.shape == (3, *net.input.shape[1:])
    if not record.mean_file and not len(record.mean_value) > 1:
        pixels = batch / record.scale + (record.mean_value[0] if record.mean_value else 0)
        np.testing.assert_allclose(pixels, pixels.round(), atol=1e-3)
        assert 0 <= pixels.min() < 60 and 195 < pixels.max() <= 255


def test_export_of_another_size_is_checked_on_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A net that is used on larger pictures than it was trained on is exported as before."""
    monkeypatch.chdir(tmp_path)
    body = BODY[: BODY.index('layer { name: "ip"')]
    Path("deploy.prototxt").write_text(DEPLOY % (3, 20, 20) + body)
    save_weights(Net(build_graph_of(file_plan("deploy.prototxt", pb.TEST))), WEIGHTS)
    Path("snap_preprocessing.prototxt").write_text("height: 8 width: 8")
    with caplog.at_level(logging.WARNING, "bpt"):
        lines = list(export_net(ExportRequest("deploy.prototxt", "out.pt2", (WEIGHTS,))))
    assert not any("random pictures" in line for line in lines)
    assert any("snap_preprocessing.prototxt" in message for message in caplog.messages)
