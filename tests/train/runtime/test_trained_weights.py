"""Weights of another net are refused where nothing is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import FileError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.system.device import CPU
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.trained_weights import load_trained
from bpt.train.state import save_weights

INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 } } }'
LAYER = """
layer { name: "%s" type: "InnerProduct" bottom: "data" top: "%s"
  inner_product_param { num_output: 1 bias_term: false weight_filler { type: "constant" value: %d } } }
"""


def net_of(text: str) -> Net:
    Path("net.prototxt").write_text(text)
    return make_net(build_graph_of(file_plan("net.prototxt", pb.TEST)), CPU)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (("a", 3), ("b", 4)):
        save_weights(net_of(INPUT + LAYER % (name, name, value)), f"{name}.caffemodel")


def test_weights_of_another_net() -> None:
    net = net_of(INPUT + "".join(LAYER % (name, name, 7) for name in "bcde"))
    with pytest.raises(FileError) as caught:
        load_trained(net, ["a.caffemodel"], "net.prototxt")
    assert str(caught.value) == (
        "a.caffemodel: weights of another net: no layer is one of those with parameters in net.prototxt (b, c, d, …)"
    )
    assert [value.flatten().tolist() for value in net.parameters()] == [[7, 7]] * 4


def test_one_of_several_files_is_enough() -> None:
    net = net_of(INPUT + LAYER % ("b", "b", 7))
    assert load_trained(net, ["a.caffemodel,b.caffemodel"], "net.prototxt") == {"data", "a", "b"}
    assert [value.flatten().tolist() for value in net.parameters()] == [[4, 4]]


def test_a_net_without_parameters_takes_any() -> None:
    load_trained(net_of(INPUT), ["a.caffemodel"], "net.prototxt")
