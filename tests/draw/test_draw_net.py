"""The picture of a network file: what is said of it. What is drawn: tests/draw/test_drawing.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.draw.draw_net import Request, draw_net
from bpt.errors import PrototxtError
from tests.draw.test_drawing import texts
from tests.net_cases import PROTOTXT

pytest.importorskip("matplotlib")


def test_each_net_that_comes_along(tmp_path: Path) -> None:
    """A few of each family; none crashes, and all layers are there."""
    for name, layers in (("lenet", 9), ("googlenet", 159), ("resnet20", 95), ("alexnet", 24)):
        lines = draw_net(Request(str(PROTOTXT / name / "train_val.prototxt"), str(tmp_path / f"{name}.svg")))
        assert lines[-1].startswith(f"{tmp_path}/{name}.svg: {layers} layers in ")


def test_the_note(tmp_path: Path) -> None:
    path = str(tmp_path / "a.svg")
    draw_net(Request(str(PROTOTXT / "lenet" / "deploy.prototxt"), path))
    assert "batch of 1, 431,080 parameters" in texts(tmp_path / "a.svg")
    model = str(PROTOTXT / "cifar10_quick" / "train_val.prototxt")
    for phase, words in (("TEST", "TEST net"), ("ALL", "training and test nets")):
        draw_net(Request(model, path, phase=phase, shape=(3, 32, 32)))
        assert f"{words}, batch of 100, 145,578 parameters" in texts(tmp_path / "a.svg")


def test_a_layer_that_bpt_does_not_know_is_drawn_without_shapes(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }\n'
        'layer { name: "other" type: "MyOwnLayer" bottom: "x" top: "y" }'
    )
    lines = draw_net(Request(str(tmp_path / "net.prototxt"), str(tmp_path / "a.svg")))
    assert "shapes are not known: " in lines[0]
    assert 'unknown layer type "MyOwnLayer"' in lines[0]
    assert {"MyOwnLayer", "y"} <= set(texts(tmp_path / "a.svg"))


def test_a_text_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text("layer { nam: 3 }")
    with pytest.raises(PrototxtError, match='LayerParameter has no field "nam"'):
        draw_net(Request(str(tmp_path / "net.prototxt"), str(tmp_path / "a.svg")))
