"""``bpt deploy``: a deploy text from a train text, and what takes train texts as if it had been derived."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import bpt as package
from bpt.config.plan.nets import file_plan
from bpt.config.proto.layout import readable
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.net_graph import build_graph_of
from tests.support.commands import Bpt
from tests.support.paths import PROTOTXT
from tests.support.shipped_nets import deploy

TRAIN = """\
name: "zwölf"
layer { name: "d" type: "HDF5Data" top: "x" top: "label" include { phase: TRAIN }
  hdf5_data_param { source: "t" batch_size: 5 } }
layer { name: "d" type: "DummyData" top: "x" top: "label" include { phase: TEST }
  dummy_data_param { shape { dim: 5 dim: 3 } shape { dim: 5 }
    data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" loss_weight: 0
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "side" type: "InnerProduct" bottom: "ip" top: "side" inner_product_param { num_output: 4 } }
layer { name: "side_loss" type: "SoftmaxWithLoss" bottom: "side" bottom: "label" top: "side_loss" loss_weight: 0.3 }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" softmax_param { axis: 1 } }
layer { name: "size" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "size" loss_weight: 0.1 }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
"""
DEPLOY = """\
# The deploy text of train.prototxt, derived by bpt deploy.
# The input "x" replaces the layer "d" (DummyData): N x 3.
# "prob" gives the probabilities of the classes; it replaces the loss "loss" (SoftmaxWithLoss).
# Left out, because they need labels or are losses: accuracy, size.
# Left out with the layers that only they need: the side losses side_loss.
name: "zwölf"
layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 1 dim: 3 } } }
layer {
  name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } }
}
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" softmax_param { axis: 1 } }
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.prototxt").write_text(TRAIN)


def test_the_whole_text(bpt: Bpt) -> None:
    assert bpt("deploy", "--model=train.prototxt").out == DEPLOY
    outcome = bpt("deploy", "--model=train.prototxt", "--output=deploy.prototxt")
    assert (outcome.status, outcome.out) == (0, "deploy.prototxt\n")
    assert Path("deploy.prototxt").read_text() == DEPLOY


def computed(graph: LayerGraph) -> list[object]:
    """What a net computes, without the names that deploy texts choose: types, shapes and parameters."""
    return [
        (node.type, [graph.edges[edge].shape for edge in node.tops], [graph.params[each].shape for each in node.params])
        for node in graph.nodes
    ]


@pytest.mark.parametrize(
    "folder",
    [
        "alexnet", "bpt_cnn/case1", "caffenet", "cifar10_quick", "googlenet", "lenet", "resattnet18_3d", "resnet20",
        "resnet50", "vgg16",
    ],
)  # fmt: skip
def test_shipped_networks_have_the_deploy_text_that_comes_along(folder: str, bpt: Bpt) -> None:
    """Their deploy texts are written from the same description as their train texts, not from those."""
    shipped = deploy(folder)
    (shape,) = (shipped.blobs[name].shape for name in shipped.inputs)
    words = ("--shape", "x".join(map(str, shape[1:])))
    assert bpt("deploy", "--model", str(PROTOTXT / folder / "train_val.prototxt"), *words, "--output=d").status == 0
    derived = build_graph_of(file_plan("d", package.TEST))
    assert computed(derived)[1:] == computed(shipped)[1:]
    assert derived.edges[0].shape == (1, *shape[1:])
    assert [edge.blob for edge in derived.outputs] == ["prob"]


def test_data_that_are_not_here(bpt: Bpt) -> None:
    """The text gives the size, and says that it was assumed; else a shape must be given."""
    data = 'layer {{ name: "d" type: "ImageData" top: "x" image_data_param {{ source: "no.txt" {} }} }}'
    Path("sized.prototxt").write_text(data.format("new_height: 8 new_width: 6"))
    outcome = bpt("deploy", "--model=sized.prototxt")
    assert 'of layer "d" are missing; the text suggests samples of 3 x 8 x 6.' in outcome.out
    assert "shape { dim: 1 dim: 3 dim: 8 dim: 6 }" in outcome.out
    assert "bpt deploy --shape corrects this" in outcome.err
    Path("open.prototxt").write_text(data.format(""))
    assert "without the data the input's shape is unknown" in bpt("deploy", "--model=open.prototxt").error
    assert "dim: 1 dim: 1 dim: 4 dim: 5" in bpt("deploy", "--model=open.prototxt", "--shape=1x4x5").out


def test_mistakes(bpt: Bpt) -> None:
    assert bpt("deploy").error == "bpt deploy needs --model: the text that the network is trained with"
    same = bpt("deploy", "--model=train.prototxt", "--output=./train.prototxt")
    assert same.error == '--output: "./train.prototxt" is the text itself; give another file'
    assert Path("train.prototxt").read_text() == TRAIN
    Path("flat.prototxt").write_text(
        'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 } } }'
    )
    assert 'flat.prototxt: no input with at least 2 axes; layers without bottoms: "d"' in (
        bpt("deploy", "--model=flat.prototxt").error
    )


def test_a_module_of_a_train_text() -> None:
    """With ``deploy=True`` it takes samples; without, it reads its own data, as before."""
    module = package.load_module("train.prototxt", deploy=True)
    assert (module.inputs, module.outputs) == (["x"], ["loss"])
    assert torch.allclose(module(torch.ones(7, 3)).sum(1), torch.ones(7))
    assert package.load_module("train.prototxt").inputs == []


def test_an_export_of_a_train_text(bpt: Bpt) -> None:
    outcome = bpt("export", "--model=train.prototxt", "--output=net.pt2")
    assert outcome.status == 0, outcome.err
    assert "train.prototxt: a train text; bpt exports the deploy text that bpt deploy derives from it\n" in outcome.out
    assert re.search(r"all within", outcome.out)
    assert torch.export.load("net.pt2").module()(torch.ones(2, 3)).shape == (2, 4)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"gr\303\274n", "grün"),
        (r"\343\201\202 \303\237", "あ ß"),
        (r"\\303\\274", r"\\303\\274"),  # a backslash, and digits
        (r"\377", r"\377"),  # no UTF-8
        (r"\n\"", r"\n\""),
    ],
)
def test_letters_stand_in_texts_as_they_are(escaped: str, text: str) -> None:
    assert readable(escaped) == text
