"""Scoring a model: its means, and that nothing stays open if it fails. Caffe's numbers: ``tests/cli``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.data import lmdb_env
from bpt.device import CPU
from bpt.errors import FileError
from bpt.proto import bpt_pb2 as pb
from bpt.solvers.making import make_net
from bpt.solvers.nets import file_plan
from bpt.solvers.score import score
from bpt.solvers.snapshot import save_weights
from tests.data.lmdbs import write_images

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
    save_weights(make_net(file_plan("net.prototxt", pb.TEST).graph(), CPU), "net.caffemodel")


def test_means() -> None:
    scores = score("net.prototxt", ["net.caffemodel"], 3, CPU, 0, ())
    # 3 · (1 + 2 + 6) / 3
    assert {blob: value.tolist() for blob, value in scores.outputs.items()} == {"ip": [[9.0]]}
    assert scores.loss == 0


def test_stages_choose_the_layers() -> None:
    scores = score("net.prototxt", ["net.caffemodel"], 3, CPU, 0, ("labels",))
    assert scores.outputs["label"].tolist() == [6.0]  # (4 + 5 + 9) / 3


def test_nothing_stays_open() -> None:
    score("net.prototxt", ["net.caffemodel"], 1, CPU, 0, ())
    assert lmdb_env._environments == {}
    with pytest.raises(FileError):
        score("net.prototxt", ["net.caffemodel", "nope"], 1, CPU, 0, ())
    assert lmdb_env._environments == {}
