"""Summaries of networks, and features of blobs of many axes; the rest is in tests/tools."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch

from bpt.apps.commands.features import extract_features
from bpt.apps.commands.net_summary import summarize
from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from tests.support.paths import PROTOTXT

CPU = torch.device("cpu")
NET = """
layer { name: "d" type: "DummyData" top: "x" top: "y" top: "n" dummy_data_param {
  shape { dim: 2 dim: 3 dim: 4 dim: 5 dim: 6 } shape { dim: 2 dim: 3 dim: 4 } shape { dim: 2 }
  data_filler { type: "constant" value: 0.5 } data_filler { type: "gaussian" }
  data_filler { type: "constant" value: 3 } } }
layer { name: "t" type: "TanH" bottom: "y" top: "t" }
"""


def test_shapes_and_batches_that_are_drawn_anew(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    blobs = ["x", "t", "n"]
    paths = [str(tmp_path / blob) for blob in blobs]
    assert extract_features([], str(tmp_path / "net.prototxt"), blobs, paths, 3, CPU) == [6, 6, 6]
    found = {}
    for blob, path in zip(blobs, paths, strict=True):
        environment = lmdb.open(path, readonly=True, lock=False)
        with environment.begin() as transaction:
            found[blob] = [pb.Datum.FromString(value) for _, value in transaction.cursor()]
        environment.close()
    shapes = {blob: (data[0].channels, data[0].height, data[0].width) for blob, data in found.items()}
    assert shapes == {"x": (3, 20, 6), "t": (3, 4, 1), "n": (1, 1, 1)}
    assert set(found["x"][5].float_data) == {0.5}
    assert [list(datum.float_data) for datum in found["n"]] == [[3.0]] * 6
    drawn = np.array([datum.float_data for datum in found["t"]])
    assert len(np.unique(drawn)) == 6 * 12


def test_nobody_feeds_the_net(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
    )
    with pytest.raises(UserError, match=r"its inputs \(x\) have no data; use a net with a data layer"):
        extract_features([], str(tmp_path / "net.prototxt"), ["x"], [str(tmp_path / "a")], 1, CPU)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("name", "parameters", "flops"),
    [("alexnet", 60_965_224, 1.46e9), ("googlenet", 6_998_552, 3.19e9), ("vgg16", 138_357_544, 31.0e9)],
)
def test_the_numbers_of_the_guide(name: str, parameters: int, flops: float) -> None:
    """Those of docs/networks.md."""
    summary, notes = summarize(str(PROTOTXT / name / "deploy.prototxt"), "TEST", batch=1)
    assert (summary.parameters, notes) == (parameters, ())
    assert summary.flops == pytest.approx(flops, rel=5e-3)
    four, _ = summarize(str(PROTOTXT / name / "deploy.prototxt"), "TEST", batch=4)
    assert (four.flops, four.activations) == (4 * summary.flops, 4 * summary.activations)
