"""``bpt export`` writes what does as the net does, says how near, and leaves nothing behind that does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bpt
from bpt.apps.export import export_net as exporting
from bpt.apps.export.export_net import ExportRequest, export_net
from bpt.apps.export.parity import OutputDifference, Runner, compare
from bpt.apps.export.random_inputs import RandomInputs
from bpt.base.errors import RunError
from bpt.cli.main import main
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.parse import parse_text
from bpt.nn.net_graph import build_graph_of
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

NET = inputs(x=(2, 3)) + inner_product("x", "ip", 4) + layer("Softmax", "ip", "prob")


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bpt.Net]:
    """A net whose weights are not those that fillers draw."""
    monkeypatch.chdir(tmp_path)
    with bpt.Net(write(tmp_path, NET), bpt.TEST) as made:
        made.params["ip"][0].data[...] = numbers(4, 3)
        made.save("w.caffemodel")
        yield made


def test_onnx(net: bpt.Net, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    assert main(["export", "--model=net.prototxt", "--weights=w.caffemodel", "--output=out.onnx"]) == 0
    first, *differences, last = capsys.readouterr().out.splitlines()
    assert first == "out.onnx: ONNX, opset 18; 16 parameters; inputs x"
    pattern = r"prob \(%d, 4\): differs by [\d.e-]+ at most, numbers up to 0\.\d+"
    assert [bool(re.fullmatch(pattern % rows, line)) for rows, line in zip((4, 6), differences, strict=True)] == [
        True
    ] * 2
    assert last == f"checked on random inputs by onnxruntime {runtime.__version__}: all within 0.0001"
    session = runtime.InferenceSession("out.onnx")
    (prob,) = session.run(["prob"], {"x": numbers(2, 3, seed=1)})
    np.testing.assert_allclose(prob, net.forward(x=numbers(2, 3, seed=1))["prob"], rtol=1e-5)
    assert sorted(path.name for path in Path().iterdir()) == ["net.prototxt", "out.onnx", "w.caffemodel"]


def test_metadata_of_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    text = inputs(pixels=(1, 1, 4, 4)) + inner_product("pixels", "ip", 2) + layer("Softmax", "ip", "prob")
    with bpt.Net(write(tmp_path, text), bpt.TEST) as made:
        made.save("w_iter_1.caffemodel")
    Path("w_preprocessing.prototxt").write_text("height: 6 width: 6 transform_param { crop_size: 4 scale: 0.5 }\n")
    Path("classes.txt").write_text("dark\nbright\n")
    list(export_net(ExportRequest("net.prototxt", "out.onnx", ("w_iter_1.caffemodel",))))
    found = {entry.key: entry.value for entry in onnx.load("out.onnx").metadata_props}
    assert (found["bpt.input"], found["bpt.classes"]) == ("pixels", "dark\nbright")
    record = parse_text(found["bpt.preprocessing"], pb.ImagePreprocessing).message
    assert (record.channels, record.height, record.width) == (1, 6, 6)
    assert (record.transform_param.crop_size, record.transform_param.scale) == (4, 0.5)


def test_pt2(net: bpt.Net) -> None:
    lines = list(export_net(ExportRequest("net.prototxt", "out.pt2", ("w.caffemodel",))))
    assert lines[0] == "out.pt2: a program of torch; 16 parameters; inputs x"
    program = torch.export.load("out.pt2").module()
    x = numbers(6, 3, seed=2)
    with torch.no_grad():
        prob = program(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(prob, net.forward_all(x=x)["prob"], rtol=1e-5)


@pytest.mark.usefixtures("net")
def test_a_net_for_one_size_of_batch() -> None:
    """Reshape says all of the shape: nothing is left open, the text's own size is exported, and that is said."""
    Path("fixed.prototxt").write_text(NET + layer("Reshape", "prob", "r", "reshape_param { shape { dim: 8 } }"))
    lines = list(export_net(ExportRequest("fixed.prototxt", "out.pt2")))
    assert lines[1].startswith("for batches of 2 only (")
    assert lines[2].startswith("r (8,): differs by ")


@pytest.mark.usefixtures("net")
def test_what_is_not_the_net_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    right = exporting.write

    def wrong(*arguments: Any) -> Runner:
        run = right(*arguments).run
        return Runner(lambda *batch: tuple(top + 0.01 for top in run(*batch)), "a wrong one")

    monkeypatch.setattr(exporting, "write", wrong)
    Path("out.pt2").write_text("what stood there before")
    with pytest.raises(RunError, match=r"what was written is not the net: prob \(4, 4\): differs by 0.01 at most"):
        list(export_net(ExportRequest("net.prototxt", "out.pt2")))
    assert Path("out.pt2").read_text() == "what stood there before"
    assert sorted(path.name for path in Path().iterdir()) == ["net.prototxt", "out.pt2", "w.caffemodel"]


@pytest.mark.usefixtures("net")
def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.prototxt").write_text(
        'layer { name: "d" type: "DummyData" top: "x" '
        'dummy_data_param { shape { dim: 2 } data_filler { type: "uniform" } } }' + layer("Exp", "x", "y")
    )
    Path("huge.prototxt").write_text(inputs(x=(1, 2)) + layer("Exp", "x", "y", "exp_param { scale: 1e30 }"))
    for words, message in (
        (["--output=o.onnx"], "bpt export needs --model: the network to export"),
        (["--model=net.prototxt"], "bpt export needs --output: the file to write"),
        (["--model=net.prototxt", "--output=o.tflite"], "takes a file that ends in .onnx or .pt2, found o.tflite"),
        (["--model=net.prototxt", "--output=o.onnx", "--opset=7"], "--opset: takes 18 to 23, found 7"),
        (["--model=net.prototxt", "--output=none/o.onnx"], 'there is no folder "none"'),
        (["--model=train.prototxt", "--output=o.pt2"], 'no input with at least 2 axes; layers without bottoms: "d"'),
        (["--model=huge.prototxt", "--output=o.pt2"], 'numbers in "y" that are not finite'),
    ):
        assert main(["export", *words]) == 2
        assert message in capsys.readouterr().err


def test_differences(net: bpt.Net) -> None:
    """In parts of the largest number of an output, or of 1."""
    assert OutputDifference("y", (1,), 1e-4, 0.5).passes
    assert not OutputDifference("y", (1,), 2e-4, 0.5).passes
    assert OutputDifference("y", (1,), 2e-2, 200).passes
    assert not OutputDifference("y", (1,), float("inf"), 200).passes
    rounded = OutputDifference("y", (1,), 2e-2, 1.0, rounding=3e-2)
    assert rounded.passes and not rounded.is_small
    assert not OutputDifference("y", (1,), 2e-2, 1.0, rounding=4e-3).passes
    module, random = bpt.load_module("net.prototxt"), RandomInputs(build_graph_of(file_plan("net.prototxt", bpt.TEST)))
    nan = Runner(lambda x: (torch.full((2, 4), float("nan")),), "nan")
    assert compare(module, nan, random, (1,))[0].largest == float("inf")
    with pytest.raises(RunError, match=r'it makes "prob" of shape \(3,\), the net \(2, 4\)'):
        compare(module, Runner(lambda x: (torch.zeros(3),), "it"), random, (1,))
    with pytest.raises(RunError, match="it cannot run what was written"):
        compare(module, Runner(lambda x: next(iter([])), "it"), random, (1,))


def test_inputs_are_what_layers_make_sense_of(tmp_path: Path) -> None:
    """Numbers, but 0 where sequences begin, and whole numbers below ``input_dim``."""
    text = inputs(x=(4, 2, 3), cont=(4, 2), word=(4, 2))
    text += layer("Reshape", "cont", "shaped", "reshape_param { shape { dim: -1 dim: 2 } }")
    text += layer("LSTM", "x shaped", "h", "recurrent_param { num_output: 2 }")
    text += layer("Embed", "word", "e", "embed_param { num_output: 2 input_dim: 5 }")
    random = RandomInputs(build_graph_of(file_plan(write(tmp_path, text), bpt.TEST)))
    x, cont, word = random.batch(2)
    assert x.shape == (8, 2, 3)
    assert cont.tolist() == [[0, 0], *[[1, 1]] * 7]
    assert set(word.flatten().tolist()) <= {0, 1, 2, 3, 4}
    assert all(torch.equal(one, other) for one, other in zip(random.batch(2), (x, cont, word), strict=True))


@pytest.mark.slow
def test_regions(tmp_path: Path) -> None:
    """Fast R-CNN's and Mask R-CNN's layers are one operator each, R-FCN's are several: what the layer does."""
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    text = inputs(data=(1, 12, 12, 16), rois=(4, 5))
    bins = "pooled_h: 3 pooled_w: 2 spatial_scale: 0.5"
    text += layer("ROIPooling", "data rois", "max", f"roi_pooling_param {{ {bins} }}")
    text += layer("ROIAlign", "data rois", "mean", f"roi_align_param {{ {bins} sampling_ratio: 2 }}")
    text += layer(
        "PSROIPooling", "data rois", "parts", "psroi_pooling_param { output_dim: 3 group_size: 2 spatial_scale: 0.5 }"
    )
    lines = list(export_net(ExportRequest(write(tmp_path, text), str(tmp_path / "out.onnx"))))
    assert lines[-1].startswith("checked on random inputs by onnxruntime")
    operators = {node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node}
    assert {"MaxRoiPool", "RoiAlign"} <= operators


SSD = (
    inputs(data=(1, 3, 32, 32))
    + "".join(
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ '
        f'num_output: {outputs} {more} weight_filler {{ type: "gaussian" std: {std} }} }} }}'
        for name, bottom, outputs, more, std in (
            ("c", "data", 8, "kernel_size: 3 stride: 8 pad: 1", 0.3),
            ("loc", "c", 8, "kernel_size: 1", 0.1),
            ("conf", "c", 6, "kernel_size: 1", 1),
        )
    )
    + layer("Permute", "loc", "loc_perm", "permute_param { order: [0, 2, 3, 1] }")
    + layer("Flatten", "loc_perm", "loc_flat")
    + layer("Permute", "conf", "conf_perm", "permute_param { order: [0, 2, 3, 1] }")
    + layer("Reshape", "conf_perm", "conf_rows", "reshape_param { shape { dim: [0, -1, 3] } }")
    + layer("Softmax", "conf_rows", "soft", "softmax_param { axis: 2 }")
    + layer("Flatten", "soft", "conf_flat")
    + layer("PriorBox", "c data", "prior", "prior_box_param { min_size: 8 max_size: 16 variance: 0.1 }")
)


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ("background_label_id: 0 keep_top_k: 10 confidence_threshold: 0.2 nms_param { top_k: 20 }", (20, 30)),
        pytest.param(
            "background_label_id: -1 keep_top_k: 7 nms_param { nms_threshold: 0.6 }", (14, 21), marks=pytest.mark.slow
        ),
        pytest.param("confidence_threshold: 1", (2, 3), marks=pytest.mark.slow),  # nothing is found
    ],
)
@pytest.mark.parametrize("shared", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_detections(settings: str, rows: tuple[int, int], shared: str, tmp_path: Path) -> None:
    """NonMaxSuppression, with what SSD does before and behind it; on all classes of all images."""
    pytest.importorskip("onnxruntime")
    text = f"detection_output_param {{ num_classes: 3 share_location: {shared} code_type: CENTER_SIZE {settings} }}"
    net = SSD if shared == "true" else SSD.replace("num_output: 8 kernel_size: 1", "num_output: 24 kernel_size: 1")
    path = write(tmp_path, net + layer("DetectionOutput", "loc_flat conf_flat prior", "found", text))
    _, *differences, last = list(export_net(ExportRequest(path, str(tmp_path / "out.onnx"))))
    assert last.endswith("all within 0.0001")
    found = [int(re.match(r"found \(1, 1, (\d+), 7\)", each)[1]) for each in differences]  # type: ignore[index]
    assert tuple(found) == rows


RPN = "pre_nms_topn: 150 feat_stride: 4"


@pytest.mark.parametrize(
    "settings",
    [
        f"{RPN} base_size: 4 scale: 2 scale: 3 ratio: 1 min_size: 4 post_nms_topn: 12 nms_thresh: 0.5",
        pytest.param(
            f"{RPN} anchor_base_size: 4 anchor_ratio: 1 anchor_scale: 1 max_rois: 9 rpn_min_size: 4 "
            "rpn_nms_thresh: 0.6",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["lists", "counts"],
)
def test_proposals(settings: str, tmp_path: Path) -> None:
    """Faster R-CNN: what is proposed of each image of a batch, and what is found there."""
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    anchors = 2 if " scale" in settings else 1
    text = inputs(data=(1, 3, 48, 64), im_info=(1, 3))
    for name, bottom, outputs, more, std in (
        ("c", "data", 8, "kernel_size: 3 stride: 4 pad: 1", 0.3),
        ("scores", "c", 2 * anchors, "kernel_size: 1", 1),
        ("moves", "c", 4 * anchors, "kernel_size: 1", 0.1),
    ):
        text += layer("Convolution", bottom, name, f'convolution_param {{ num_output: {outputs} {more} '
                      f'weight_filler {{ type: "gaussian" std: {std} }} }}')  # fmt: skip
    text += layer("Sigmoid", "scores", "scores", name="sigmoid")
    text += layer("Proposal", "scores moves im_info", "rois roi_scores", f"proposal_param {{ {settings} }}")
    text += layer("ROIPooling", "c rois", "pool", "roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.25 }")
    text += inner_product("pool", "fc", 5) + layer("Softmax", "fc", "prob")
    path = tmp_path / "out.onnx"
    _, *differences, last = list(export_net(ExportRequest(write(tmp_path, text), str(path))))
    assert last.endswith("all within 0.0001")
    most = 12 if anchors == 2 else 9
    found = [int(re.match(r"(?:prob|roi_scores) \((\d+),", each)[1]) for each in differences]  # type: ignore[index]
    assert max(found) <= 3 * most and min(found) >= most
    assert {node.domain for node in onnx.load(path).graph.node} == {""}
