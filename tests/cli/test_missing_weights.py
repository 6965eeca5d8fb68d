"""Weights that lack a layer of the network: every command that runs one warns of it, and refuses random answers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.train.state import save_weights
from tests.support.commands import Bpt, Outcome
from tools import extract_features

CLASSIFIER = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "conv" top: "ip1"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip1" top: "prob" }
"""
DETECTOR = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 8 } }
layer { name: "prior" type: "PriorBox" bottom: "pool" bottom: "data" top: "prior" prior_box_param { min_size: 4 } }
layer { name: "loc" type: "InnerProduct" bottom: "pool" top: "loc" inner_product_param { num_output: 4 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool" top: "ip1"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "ip1" bottom: "prior" top: "out"
  detection_output_param { num_classes: 2 nms_param { nms_threshold: 0.5 } } }
"""
FED = CLASSIFIER.replace('type: "Input"', 'type: "DummyData"').replace(
    "input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } }",
    'dummy_data_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } data_filler { type: "gaussian" } }',
)
W = "--weights=w.caffemodel"
PICTURE = ("--preprocessing=prep.prototxt", "p.png")
COMMANDS = {
    "classify": (CLASSIFIER, ("classify", "--model=net.prototxt", W, *PICTURE)),
    "detect": (DETECTOR, ("detect", "--model=net.prototxt", W, *PICTURE)),
    "explain": (
        CLASSIFIER,
        ("explain", "--model=net.prototxt", W, "--preprocessing=prep.prototxt", "--input=p.png", "--output=cam"),
    ),
    "export": (CLASSIFIER, ("export", "--model=net.prototxt", W, "--output=net.pt2")),
    "test": (FED, ("test", "--model=net.prototxt", W, "--iterations=1")),
    "extract_features": (FED, ("w.caffemodel", "net.prototxt", "prob", "db", "1", "lmdb")),
}
WARNING = re.compile(r"^W.*\] Layer ip1 is in none of the weights; .*fc1 \(.*\), of the same shapes", re.MULTILINE)
Run = Callable[..., Outcome]


@pytest.fixture
def run(bpt: Bpt, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command of COMMANDS with more words."""

    def call(command: str, *words: str) -> Outcome:
        if command != "extract_features":
            return bpt(*COMMANDS[command][1], *words)
        capsys.readouterr()
        logger = logging.getLogger("bpt")  # as in a process of its own
        monkeypatch.setattr(logger, "handlers", [logging.NullHandler()])
        monkeypatch.setattr(logger, "propagate", False)
        status = extract_features.main([*COMMANDS[command][1], *words])
        done = capsys.readouterr()
        return Outcome(status, done.out, done.err)

    return call


def write(folder: Path, text: str, weights: str = "w.caffemodel", name: str = "fc1") -> None:
    """A net whose weights call the layer ip1 ``name``."""
    (folder / "net.prototxt").write_text(text.replace('"ip1"', f'"{name}"'))
    save_weights(Net(build_graph_of(file_plan(str(folder / "net.prototxt"), pb.TEST))), str(folder / weights))
    (folder / "net.prototxt").write_text(text)
    (folder / "prep.prototxt").write_text("channels: 1 height: 8 width: 8")
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(folder / "p.png")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_layer_that_is_in_no_weights(folder: Path, run: Run, command: str) -> None:
    write(folder, COMMANDS[command][0])
    outcome = run(command)
    assert WARNING.search(outcome.err)
    assert len(re.findall(r"^W.*none of the weights", outcome.err, re.MULTILINE)) == 1
    if command == "test":  # scores a net as it is, as before
        assert outcome.status == 0
    else:
        assert outcome.status == 2
        assert outcome.error.startswith("w.caffemodel: layer ip1 is in none of the weights")
        assert "--allow-random" in outcome.error
        assert outcome.out == "" or command == "extract_features"
        outcome = run(command, "--allow-random")
        assert WARNING.search(outcome.err)
        assert outcome.status == 0
        assert run(command, "--allow-random", "--strict").status == 2
    if command == "extract_features":
        (folder / "db").rename(folder / "old")
    outcome = run(command, "--strict")
    assert outcome.status == 2
    assert "layer ip1 is in none of the weights" in outcome.error


@pytest.mark.parametrize("command", COMMANDS)
def test_weights_in_two_files_are_enough(folder: Path, run: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, COMMANDS[command][0])
    write(folder, COMMANDS[command][0], "b.caffemodel.h5", "ip1")
    text, words = COMMANDS[command]
    both = tuple(word.replace("w.caffemodel", "w.caffemodel,b.caffemodel.h5") for word in words)
    monkeypatch.setitem(COMMANDS, command, (text, both))
    outcome = run(command, "--strict")
    assert outcome.status == 0
    assert "none of the weights" not in outcome.err


def test_a_head_that_the_answer_does_not_depend_on(folder: Path, run: Run) -> None:
    """Features below it, and classes beside it, are right: a warning is enough."""
    write(folder, FED)
    outcome = run("extract_features")
    assert outcome.status == 2
    words = ("w.caffemodel", "net.prototxt", "conv", "convs", "1", "lmdb")
    assert extract_features.main(words) == 0
    side = (
        'layer { name: "side" type: "InnerProduct" bottom: "conv" top: "side" inner_product_param { num_output: 2 } }'
    )
    write(folder, CLASSIFIER, name="ip1")
    (folder / "net.prototxt").write_text(CLASSIFIER + side)
    for command in ("classify", "explain"):
        outcome = run(command)
        assert (outcome.status, "Layer side is in none of the weights" in outcome.err) == (0, True)
        assert run(command, "--strict").status == 2
    assert run("export").status == 2  # of which "side" is an output


def test_finetuning_starts_from_what_there_is(folder: Path, bpt: Bpt) -> None:
    write(folder, FED)
    loss = 'layer { name: "loss" type: "EuclideanLoss" bottom: "prob" bottom: "prob" top: "loss" }'
    (folder / "net.prototxt").write_text(FED + loss)
    (folder / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0 lr_policy: "fixed" max_iter: 1 snapshot_after_train: false solver_mode: CPU '
        'snapshot_prefix: "s" random_seed: 1'
    )
    outcome = bpt("train", "--solver=solver.prototxt", W)
    assert outcome.status == 0
    assert re.search(r"^I.*\] Ignoring source layer fc1$", outcome.err, re.MULTILINE)
    assert re.search(r"^I.*\] Layer ip1 is not in w.caffemodel; it keeps its parameters$", outcome.err, re.MULTILINE)


def test_export_without_weights_is_as_the_fillers_draw(folder: Path, bpt: Bpt) -> None:
    write(folder, CLASSIFIER)
    outcome = bpt("export", "--model=net.prototxt", "--output=net.pt2", "--strict")
    assert (outcome.status, "none of the weights" in outcome.err) == (0, False)
