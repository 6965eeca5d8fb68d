"""Scoring a model: its means, and that nothing stays open if it fails. Caffe's numbers: ``tests/cli``."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.apps.score.metrics_report import Metrics
from bpt.apps.score.score_model import score
from bpt.base.errors import FileError, LayerError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data import lmdb_file
from bpt.data.lmdb_file import open_lmdb
from bpt.data.lmdb_pages import LmdbFile
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.testing import ScoresOfTest
from bpt.train.state import save_weights
from tests.support.detecting_net import detecting_net
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.lmdbs import write_images

# Three images of one pixel with the values 1, 2 and 6; the output is three times the pixel.
NET = """
layer { name: "data" type: "Data" top: "data" top: "label"
  data_param { source: "lmdb" backend: LMDB batch_size: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 1 weight_filler { type: "constant" value: 3 } bias_term: false } }
layer { name: "quiet" type: "Silence" bottom: "label" include { not_stage: "labels" } }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "lmdb", [np.full((1, 1, 1), value, np.uint8) for value in (1, 2, 6)], [4, 5, 9])
    (tmp_path / "net.prototxt").write_text(NET)
    save_weights(make_net(build_graph_of(file_plan("net.prototxt", pb.TEST)), CPU), "net.caffemodel")


def test_means() -> None:
    scores = score("net.prototxt", ["net.caffemodel"], 3, CPU, 0, ())
    # 3 · (1 + 2 + 6) / 3
    assert {blob: value.tolist() for blob, value in scores.outputs.items()} == {"ip": [[9.0]]}
    assert scores.loss == 0


def test_a_deploy_text_scores_nothing(caplog: pytest.LogCaptureFixture) -> None:
    start = NET.index('layer { name: "ip"')
    text = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 1 dim: 1 } } }\n'
    Path("deploy.prototxt").write_text(text + NET[start : NET.index('layer { name: "quiet"')])
    score("deploy.prototxt", ["net.caffemodel"], 1, CPU)
    last = caplog.records[-1]
    assert last.levelname == "WARNING" and last.getMessage().startswith("deploy.prototxt: these numbers score nothing")


def test_samples_that_count_more_than_once_are_told(caplog: pytest.LogCaptureFixture) -> None:
    for iterations, says in (
        (2, []),
        (3, []),
        (4, ["4 × 1 = 4 samples, lmdb has 3: some count up to 2 times; "]),
        (6, ["6 × 1 = 6 samples, lmdb has 3: each counts 2 times; "]),
    ):
        caplog.clear()
        score("net.prototxt", ["net.caffemodel"], iterations, CPU)
        remedy = "set --iterations and batch_size so that their product is 3"
        told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert told == [f"the test takes {text}{remedy}" for text in says]


def test_stages_choose_the_layers() -> None:
    scores = score("net.prototxt", ["net.caffemodel"], 3, CPU, 0, ("labels",))
    assert scores.outputs["label"].tolist() == [6.0]  # (4 + 5 + 9) / 3


def test_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[LmdbFile] = []

    def opened(path: str) -> LmdbFile:
        files.append(open_lmdb(path))
        return files[-1]

    monkeypatch.setattr(lmdb_file, "open_lmdb", opened)
    score("net.prototxt", ["net.caffemodel"], 1, CPU, 0, ())
    with pytest.raises(FileError):
        score("net.prototxt", ["net.caffemodel", "nope"], 1, CPU, 0, ())
    assert files
    assert not any(file.close.alive for file in files)


# Images of one pixel with the values 1 … 10 in batches of 4, over 3 batches: the last one begins anew with 1 and 2. The
# scores are (x, 3); the right class of image i is i modulo 2.
WITH_LABELS = """
layer { name: "data" type: "Data" top: "data" top: "label"
  data_param { source: "ten" backend: LMDB batch_size: 4 } }
layer { name: "const" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "constant" value: 1 } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" top: "by_class" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" loss_weight: 2 }
layer { name: "rows" type: "Power" bottom: "data" top: "rows" }
"""


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_many_ranks_score_like_one(tmp_path: Path, ranks: int, caplog: pytest.LogCaptureFixture) -> None:
    write_images(tmp_path / "ten", [np.full((1, 1, 1), i, np.uint8) for i in range(1, 11)], [i % 2 for i in range(10)])
    (tmp_path / "labelled.prototxt").write_text(WITH_LABELS)
    net = make_net(build_graph_of(file_plan("labelled.prototxt", pb.TEST)), CPU)
    weight, bias = (value.detach() for value in net.parameters())
    weight[:, 0] = torch.tensor([1.0, 0.0])
    bias[:] = torch.tensor([0.0, 3.5])
    save_weights(net, "labelled.caffemodel")
    net.close()

    def run(comm: Communicator) -> ScoresOfTest:
        return score("labelled.prototxt", ["labelled.caffemodel"], 3, CPU, world=comm)

    pixels = np.arange(12) % 10 + 1.0
    labels = (pixels - 1) % 2
    outputs = np.stack([pixels, np.full(12, 3.5)], axis=1)
    right = outputs.argmax(1) == labels
    log_p = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
    loss = -log_p[np.arange(12), labels.astype(int)].mean()
    with caplog.at_level(logging.INFO, "bpt"):
        for found in run_ranks(ranks, run):
            assert found.loss == pytest.approx(2 * loss, rel=1e-6)
            assert found.outputs["loss"].item() == pytest.approx(loss, rel=1e-6)
            assert found.outputs["accuracy"].item() == pytest.approx(right.mean())
            assert found.outputs["by_class"].tolist() == pytest.approx([right[labels == c].mean() for c in (0, 1)])
            assert found.outputs["rows"].flatten().tolist() == pytest.approx(pixels.reshape(3, 4).mean(0).tolist())
    shown = [record.getMessage() for record in caplog.records if record.threadName == "rank 0"]
    assert [line for line in shown if line.startswith("Batch 0, rows")] == [
        f"Batch 0, rows = {i}" for i in (1, 2, 3, 4)
    ]


def test_what_ranks_cannot_divide_each_one_scores(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Softmax over the samples of a batch: p = e^3x / (e^3 + e^6), of the pixels x = 1 and 2."""
    text = NET.replace("batch_size: 1", "batch_size: 2").replace('stage: "labels"', 'stage: "whole"')
    mixing = 'layer { name: "m" type: "Softmax" bottom: "ip" top: "p" softmax_param { axis: 0 } }'
    (tmp_path / "mixing.prototxt").write_text(text + mixing)

    def run(comm: Communicator) -> ScoresOfTest:
        return score("mixing.prototxt", ["net.caffemodel"], 1, CPU, world=comm)

    for found in run_ranks(3, run):
        expected = np.exp([3, 6]) / np.exp([3, 6]).sum()
        np.testing.assert_allclose(found.outputs["p"].flatten().tolist(), expected, rtol=1e-6)


def test_what_ranks_cannot_score(tmp_path: Path) -> None:
    (tmp_path / "mixing.prototxt").write_text(
        NET + 'layer { name: "m" type: "Filter" bottom: "ip" bottom: "label" top: "p" }'
    )
    for ranks in (1, 2):

        def run(comm: Communicator) -> str:
            try:
                score("mixing.prototxt", ["net.caffemodel"], 1, CPU, world=comm)
            except LayerError as error:
                return str(error)
            return ""

        said = set(run_ranks(ranks, run))
        if ranks == 1:
            assert said == {""}
        else:
            (message,) = said
            assert message.startswith('mixing.prototxt:7:1: layer "m": ')
            assert message.endswith("so its batch cannot be divided over ranks; train on one process")


def test_a_confusion_matrix_without_a_folder_is_told_before_anything_else() -> None:
    def run(comm: Communicator) -> str:
        with pytest.raises(FileError) as caught:
            score("no such net", ["none"], 1, CPU, world=comm, metrics=Metrics(confusion="no/c.csv"))
        return str(caught.value)

    message = 'no/c.csv: cannot be written: there is no folder "no"; make it, or name another'
    assert set(run_ranks(2, run)) == {message}


@pytest.mark.parametrize(("labels", "name"), [("", ""), ("names.txt", " (cat)")])
def test_names_of_detected_classes(labels: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Behind the number that parsers read, and only if a file is given: lines of Caffe's fork have none."""
    Path("detecting.prototxt").write_text(detecting_net(tmp_path))
    for file in ("names.txt", "classes.txt"):
        Path(file).write_text("background\ncat\ndog\n")
    with caplog.at_level(logging.INFO, "bpt"):
        score("detecting.prototxt", [], 2, CPU, metrics=Metrics(per_class=True, labels=labels))
    [line] = [message for message in caplog.messages if message.startswith("class1: ")]
    assert line.endswith(name) and float(line.removeprefix("class1: ").removesuffix(name)) > 0
    Path("few.txt").write_text("cat\n")
    with pytest.raises(FileError, match=r"few\.txt: names 1 classes, the net has 3"):
        score("detecting.prototxt", [], 2, CPU, metrics=Metrics(per_class=True, labels="few.txt"))
