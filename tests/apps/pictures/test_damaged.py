"""A damaged picture is reported with its reason, the others are answered, and the status is 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bpt.cli.main import main
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.train.state import save_weights
from tests.support.damaged_pictures import DAMAGED, picture_bytes

INPUT = 'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }\n'
POOL = """layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 8 } }
"""
CLASSIFY = f"""{INPUT}{POOL}
layer {{ name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param {{ num_output: 3 }} }}
layer {{ name: "prob" type: "Softmax" bottom: "ip" top: "prob" }}
"""
DETECT = f"""{INPUT}{POOL}
layer {{ name: "prior" type: "PriorBox" bottom: "pool" bottom: "data" top: "prior" prior_box_param {{ min_size: 4 }} }}
layer {{ name: "loc" type: "InnerProduct" bottom: "pool" top: "loc" inner_product_param {{ num_output: 4 }} }}
layer {{ name: "conf" type: "InnerProduct" bottom: "pool" top: "conf" inner_product_param {{ num_output: 2 }} }}
layer {{ name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "out"
  detection_output_param {{ num_classes: 2 nms_param {{ nms_threshold: 0.5 }} }} }}
"""
WORDS = ["--model", "net.prototxt", "--weights", "w.caffemodel", "--preprocessing", "how.prototxt", "--json"]


@pytest.fixture(params=["classify", "detect"])
def command(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command; its net and weights lie in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(CLASSIFY if request.param == "classify" else DETECT)
    Path("how.prototxt").write_text("height: 8 width: 8")
    torch.manual_seed(0)
    save_weights(Net(build_graph_of(file_plan("net.prototxt", pb.TEST))), "w.caffemodel")
    Path("pictures").mkdir()
    for number in range(18):  # more than go through the net at once
        Path(f"pictures/good{number:02d}.png").write_bytes(picture_bytes("PNG", number))
    return str(request.param)


def answered(out: str) -> list[str]:
    return [Path(json.loads(line)["file"]).name for line in out.splitlines()]


@pytest.mark.parametrize("name", DAMAGED)
def test_the_others_are_answered(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    DAMAGED[name](Path("pictures", f"good05_{name}"))
    Path("list.txt").write_text("".join(f"pictures/{path.name}\n" for path in sorted(Path("pictures").iterdir())))
    asked = ["pictures"] if name not in ("folder.png",) else ["list.txt"]  # a folder's folders are looked through
    assert main([command, *WORDS, *asked]) == 1
    done = capsys.readouterr()
    assert answered(done.out) == [f"good{number:02d}.png" for number in range(18)]
    reported = [line for line in done.err.splitlines() if f"good05_{name}" in line]
    assert len(reported) == 1
    assert reported[0].count(f"pictures/good05_{name}") >= 1
    assert "1 of 19" in done.err


def test_only_damaged_ones(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cut.jpg", "empty.png"):
        DAMAGED[name](Path(name))
    assert main([command, *WORDS, "cut.jpg", "empty.png"]) == 1
    assert answered(capsys.readouterr().out) == []
    assert main([command, *WORDS, "cut.jpg"]) == 2  # the only file that the user has named is wrong


def test_accuracy_is_that_of_what_is_answered(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    if command == "detect":
        pytest.skip("it knows no labels")
    DAMAGED["cut.png"](Path("cut.png"))
    Path("list.txt").write_text("pictures/good00.png 2\ncut.png 2\npictures/good01.png 2\n")
    assert main([command, *WORDS[:-1], "list.txt"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("accuracy = ")
    assert last.endswith("of 2)")


def test_drawn_pictures_keep_their_names(command: str) -> None:
    if command == "classify":
        pytest.skip("it draws nothing")
    DAMAGED["cut.png"](Path("cut.png"))
    asked = ["pictures/good00.png", "cut.png", "pictures/good01.png", "pictures/good00.png"]
    assert main([command, *WORDS, "--output", "drawn", *asked]) == 1
    assert sorted(path.name for path in Path("drawn").iterdir()) == ["good00.png", "good00_2.png", "good01.png"]
