"""caffe.draw makes the pictures of ``bpt draw``."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

import bpt
from bpt.base.errors import UserError
from bpt.caffe import draw
from bpt.caffe.proto import caffe_pb2
from tests.support.paths import PROTOTXT

pytest.importorskip("matplotlib")


def test_draw_net(tmp_path: Path) -> None:
    net = caffe_pb2.NetParameter()
    text_format.Merge((PROTOTXT / "lenet" / "train_val.prototxt").read_text(), net)
    assert draw.draw_net(net, "LR").startswith(b"\x89PNG")
    draw.draw_net_to_file(net, tmp_path / "net.svg", "TB", bpt.TEST, display_lrm=True)
    picture = (tmp_path / "net.svg").read_text()
    assert "accuracy" in picture
    assert "accuracy" not in draw.draw_net(net, "BT", "svg", bpt.TRAIN).decode()
    with pytest.raises(UserError, match="ext is one of"):
        draw.draw_net(net, "LR", "jpg")
    with pytest.raises(UserError, match="rankdir is"):
        draw.draw_net(net, "RL")
