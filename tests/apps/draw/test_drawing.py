"""Drawings of nets as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.apps.draw.drawing_boxes import Arrow, Box, InPlaceRow, NetDrawing
from bpt.apps.draw.net_drawing import DrawRequest, check_drawing, draw, draw_net
from bpt.base.errors import PrototxtError, UsageError
from tests.support.figures import size, texts
from tests.support.paths import PROTOTXT

pytest.importorskip("matplotlib")
BOXES = (
    Box("in", "Input", "data"),
    Box("conv_with_a_name_that_is_far_too_long_for_any_box_of_a_drawing", "Convolution", "convolution",
        (InPlaceRow("ReLU", "activation"), InPlaceRow("Dropout", "activation"))),
    Box("loss $x$", "SoftmaxWithLoss", "loss and score"),
)  # fmt: skip
DRAWING = NetDrawing(
    BOXES, (Arrow(0, 1, "x", "3×5×5"), Arrow(0, 2, "label", "label"), Arrow(1, 2, "y", "4"), Arrow(2, None, "l", "l"))
)


@pytest.mark.parametrize("direction", ["TB", "BT", "LR"])
def test_all_that_is_there_is_drawn(direction: str, tmp_path: Path) -> None:
    draw(DRAWING, str(tmp_path / "a.svg"), "Net", "a note", direction)
    found = texts(tmp_path / "a.svg")
    for text in ("in", "Input", "ReLU", "Dropout", "3×5×5", "label", "4", "l", "loss $x$", "SoftmaxWithLoss"):
        assert text in found
    assert {"Net", "a note", "data", "convolution", "activation", "loss and score"} <= set(found)
    assert "pooling" not in found  # the legend has what there is
    assert any(text.startswith("conv_with_a") and text.endswith("…") for text in found)
    width, height = size(tmp_path / "a.svg")
    assert (width > height) == (direction == "LR")


def test_columns_make_it_shorter_and_wider(tmp_path: Path) -> None:
    boxes = tuple(Box(f"l{number}", "ReLU", "activation") for number in range(12))
    chain = NetDrawing(boxes, tuple(Arrow(number, number + 1, f"b{number}", "") for number in range(11)))
    for columns in (1, 3):
        draw(chain, str(tmp_path / f"{columns}.svg"), columns=columns)
    one, three = size(tmp_path / "1.svg"), size(tmp_path / "3.svg")
    assert three[0] > 1.15 * one[0]
    assert three[1] < 0.6 * one[1]


def test_a_net_without_layers_to_draw_is_no_crash(tmp_path: Path) -> None:
    draw(NetDrawing((), ()), str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").stat().st_size


def test_letters_that_the_font_lacks_are_no_warning(tmp_path: Path) -> None:
    draw(NetDrawing((Box("层", "ReLU", "activation"),), ()), str(tmp_path / "a.png"), "网络")


def test_kinds_of_files() -> None:
    check_drawing("a.SVG")
    with pytest.raises(UsageError, match=r"a\.jpg: drawings are written to files that end in"):
        check_drawing("a.jpg")


pytest.importorskip("matplotlib")


@pytest.mark.slow
def test_each_net_that_comes_along(tmp_path: Path) -> None:
    """A few of each family; none crashes, and all layers are there."""
    for name, layers in (("lenet", 9), ("googlenet", 159), ("resnet20", 95), ("alexnet", 24)):
        lines = draw_net(DrawRequest(str(PROTOTXT / name / "train_val.prototxt"), str(tmp_path / f"{name}.svg")))
        assert lines[-1].startswith(f"{tmp_path}/{name}.svg: {layers} layers in ")


def test_the_note(tmp_path: Path) -> None:
    path = str(tmp_path / "a.svg")
    draw_net(DrawRequest(str(PROTOTXT / "lenet" / "deploy.prototxt"), path))
    assert "batch of 1, 431,080 parameters" in texts(tmp_path / "a.svg")
    model = str(PROTOTXT / "cifar10_quick" / "train_val.prototxt")
    for phase, words in (("TEST", "TEST net"), ("ALL", "training and test nets")):
        draw_net(DrawRequest(model, path, phase=phase, shape=(3, 32, 32)))
        assert f"{words}, batch of 100, 145,578 parameters" in texts(tmp_path / "a.svg")


def test_a_layer_that_bpt_does_not_know_is_drawn_without_shapes(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }\n'
        'layer { name: "other" type: "MyOwnLayer" bottom: "x" top: "y" }'
    )
    lines = draw_net(DrawRequest(str(tmp_path / "net.prototxt"), str(tmp_path / "a.svg")))
    assert "shapes are not known: " in lines[0]
    assert 'unknown layer type "MyOwnLayer"' in lines[0]
    assert {"MyOwnLayer", "y"} <= set(texts(tmp_path / "a.svg"))


def test_a_text_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text("layer { nam: 3 }")
    with pytest.raises(PrototxtError, match='LayerParameter has no field "nam"'):
        draw_net(DrawRequest(str(tmp_path / "net.prototxt"), str(tmp_path / "a.svg")))
