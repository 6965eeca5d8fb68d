"""Objects are found in pictures where the net that a test scores finds them, and told in pixels of the picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bpt.apps.detect.detection import Detector
from bpt.apps.pictures.named_pictures import NamedPicture
from bpt.cli.main import main
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import AnnotatedSource
from bpt.data.resizing import Resizing
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.train.state import save_weights
from bpt.train.state.preprocessing import write_preprocessing
from scripts.make_boxes import write
from tests.support.commands import out_of
from tests.support.paths import PROTOTXT

ORANGE_RED = (213, 94, 0)  # what boxes of class 1 are drawn in


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_found_in_files_is_what_the_test_net_finds(folder: Path) -> None:
    write(folder, "test", 3, 1, overwrite=False)
    source = AnnotatedSource("test_lmdb")
    for number in range(3):  # make_boxes.py gives them to the reader as files, too
        with Image.open(f"pictures/{number}.png") as picture:
            np.testing.assert_array_equal(np.asarray(picture)[..., ::-1].transpose(2, 0, 1), source.read(number).image)
    source.close()
    text = (PROTOTXT / "ssd_shapes" / "train_val.prototxt").read_text()
    text = text.replace("data/boxes", ".").replace("train_lmdb", "test_lmdb").replace("batch_size: 20", "batch_size: 3")
    (folder / "net.prototxt").write_text(text)
    torch.manual_seed(0)
    net = Net(build_graph_of(file_plan("net.prototxt", pb.TEST)))
    save_weights(net, "snap_iter_1.caffemodel")
    values: dict[int, torch.Tensor] = {}
    edge = next(edge for edge in net.graph.edges if edge.blob == "detection_out")
    net.eval()
    net.run(0, len(net.graph), values, frozenset({edge.index}))
    rows = values[edge.index].reshape(-1, 7).detach().numpy()
    data = net.layers[0]
    recorded = data.preprocessing(data.spec)  # type: ignore[operator]
    assert isinstance(recorded, pb.ImagePreprocessing)
    data.close()  # type: ignore[operator]
    assert len(rows) > 3, "a net of random weights finds something everywhere"
    write_preprocessing("snap", recorded)
    source = AnnotatedSource("test_lmdb")
    for index in range(3):
        Image.fromarray(source.read(index).image[::-1].transpose(1, 2, 0)).save(f"{index}.png")
    source.close()
    for model in ("net.prototxt", str(PROTOTXT / "ssd_shapes" / "deploy.prototxt")):
        detector = Detector.of(file_plan(model, pb.TEST), ["snap_iter_1.caffemodel"], torch.device("cpu"), batch=2)
        for index, told in enumerate(detector.detections([NamedPicture(f"{each}.png") for each in range(3)], 0.0)):
            own = rows[rows[:, 0] == index]
            own = own[np.argsort(-own[:, 2], kind="stable")]
            assert [each.label for each in told.found] == own[:, 1].astype(int).tolist()
            np.testing.assert_allclose([each.score for each in told.found], own[:, 2], rtol=1e-6)
            np.testing.assert_allclose([each.box for each in told.found], own[:, 3:].clip(0, 1) * 64, atol=1e-4)


ONE_BOX = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 8 } }
layer { name: "prior" type: "PriorBox" bottom: "pool" bottom: "data" top: "prior" prior_box_param { min_size: 4 } }
layer { name: "loc" type: "InnerProduct" bottom: "pool" top: "loc" inner_product_param { num_output: 4 } }
layer { name: "conf" type: "InnerProduct" bottom: "pool" top: "conf"
  inner_product_param { num_output: 2 bias_filler { value: 0.75 } } }
layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "out"
  detection_output_param { num_classes: 2 nms_param { nms_threshold: 0.5 } } }
"""


@pytest.mark.parametrize(
    ("resize", "box"),
    [
        # The net finds (2, 2) to (6, 6) of 8 × 8 pixels, in a picture of 400 × 200.
        ("height: 8 width: 8", (100, 50, 300, 150)),
        # Resized to 8 × 4 and put two rows down: rows 0 to 4 of 4.
        ("transform_param { resize_param { height: 8 width: 8 resize_mode: FIT_LARGE_SIZE_AND_PAD } }",
         (100, 0, 300, 200)),
        # Resized to 16 × 8, of which columns 4 to 12 are seen: 6 to 10 of 16.
        ("transform_param { crop_size: 8 resize_param { height: 8 width: 8 resize_mode: FIT_SMALL_SIZE } }",
         (150, 50, 250, 150)),
        ("height: 8 width: 16 transform_param { crop_h: 8 crop_w: 8 }", (150, 50, 250, 150)),
    ],
)  # fmt: skip
def test_boxes_are_told_and_drawn_in_pixels_of_the_picture(
    folder: Path, capsys: pytest.CaptureFixture[str], resize: str, box: tuple[int, ...]
) -> None:
    (folder / "net.prototxt").write_text(ONE_BOX)
    save_weights(Net(build_graph_of(file_plan("net.prototxt", pb.TEST))), "w.caffemodel")
    (folder / "p.prototxt").write_text(resize)
    (folder / "labels.prototxt").write_text('item { label: 1 name: "n01" display_name: "cat" }')
    for name in ("a", "b"):
        (folder / name).mkdir()
        Image.fromarray(np.zeros((200, 400, 3), np.uint8)).save(folder / name / "x.jpg")
    words = ["detect", "--model", "net.prototxt", "--weights", "w.caffemodel", "--preprocessing", "p.prototxt"]
    told = out_of(capsys, *words, "--labels", "labels.prototxt", "--output", "found", "a", "b/x.jpg").splitlines()
    xmin, ymin, xmax, ymax = box
    assert told[0].startswith("Prepared: blue, green, red, resized ")
    assert told[1:3] == ["a/x.jpg → found/x.png", f'  0.7500  1 "cat", from ({xmin}, {ymin}) to ({xmax}, {ymax})']
    assert told[3] == "b/x.jpg → found/x_2.png"
    for name in ("x", "x_2"):
        with Image.open(folder / "found" / f"{name}.png") as image:
            assert image.size == (400, 200)
            assert image.getpixel((xmin, ymax - 1)) == image.getpixel((xmax - 1, ymax - 1)) == ORANGE_RED
            assert image.getpixel((xmin - 1, ymax - 1)) == (0, 0, 0)
    answer = json.loads(out_of(capsys, *words, "--json", "--threshold", "0.75", "a/x.jpg"))
    assert answer == {
        "file": "a/x.jpg", "width": 400, "height": 200, "objects": [{"class": 1, "score": 0.75, "box": list(box)}],
    }  # fmt: skip
    told = out_of(capsys, *words, "--threshold", "0.76", "a/x.jpg").splitlines()
    assert told[1:] == ["a/x.jpg: nothing"]


def test_mistakes_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "net.prototxt").write_text(ONE_BOX)
    save_weights(Net(build_graph_of(file_plan("net.prototxt", pb.TEST))), "w.caffemodel")
    (folder / "p.prototxt").write_text("height: 8 width: 8")
    (folder / "both.prototxt").write_text("height: 8 width: 8 transform_param { resize_param { height: 8 width: 8 } }")
    (folder / "few.prototxt").write_text("height: 8 width: 9")
    (folder / "labels.prototxt").write_text('item { label: 2 name: "dog" }')
    Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(folder / "a.png")
    mine = ["--model", "net.prototxt", "--weights", "w.caffemodel", "a.png"]
    lenet = str(PROTOTXT / "lenet" / "deploy.prototxt")
    for words, told in (
        (["a.png", "--model", "net.prototxt"], "bpt detect needs --weights"),
        (mine, "nothing says how images were prepared"),
        ([*mine, "--preprocessing", "both.prototxt"], "not both"),
        ([*mine, "--preprocessing", "few.prototxt"], "an image becomes 3×8×9"),
        (
            [*mine, "--preprocessing", "p.prototxt", "--labels", "labels.prototxt"],
            "names label 2; the net has 2 classes",
        ),
        ([*mine, "--preprocessing", "p.prototxt", "--output", "."], "a.png would be replaced"),
        (["a.png", "--model", lenet, "--weights", "w.caffemodel"], "no layer of type DetectionOutput"),
    ):
        assert main(["detect", *words]) == 2
        assert told in capsys.readouterr().err


def test_every_way_to_resize_has_words() -> None:
    for mode in [*pb.ResizeParameter.Resize_mode.keys()]:
        assert str(Resizing(pb.ResizeParameter(height=2, width=3, resize_mode=mode))).endswith(" 2×3")
