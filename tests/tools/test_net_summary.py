"""``tools/net_summary.py``: the numbers, worked by hand, and the files."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.support.commands import Tool
from tests.support.paths import PROTOTXT

# 2 images of 3×8×8; conv: 3×3 over 6×6 places, 4 maps; ip: 4·36 → 5, twice with one weight.
NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "c" top: "c" }
layer { name: "a" type: "InnerProduct" bottom: "c" top: "a" param { name: "w" }
        inner_product_param { num_output: 5 bias_term: false } }
layer { name: "b" type: "InnerProduct" bottom: "c" top: "b" param { name: "w" }
        inner_product_param { num_output: 5 bias_term: false } }
"""
ROWS = [
    # name, type, tops, parameters, shared, FLOPs (a multiply-add is 2), bytes of blobs, of parameters
    ("in", "Input", "2x3x8x8", 0, 0, None, 2 * 192 * 4, 0),
    ("conv", "Convolution", "2x4x6x6", 4 * 27 + 4, 0, 2 * 144 * (2 * 27 + 1), 2 * 144 * 4, 112 * 4),
    ("relu", "ReLU", "2x4x6x6", 0, 0, 2 * 144, 0, 0),
    ("a", "InnerProduct", "2x5", 720, 0, 2 * 5 * 2 * 144, 40, 720 * 4),
    ("b", "InnerProduct", "2x5", 0, 720, 2 * 5 * 2 * 144, 40, 0),
]


def test_a_net_by_hand(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    outcome = tool("net_summary", tmp_path / "net.prototxt", "--csv")
    assert (outcome.status, outcome.err) == (0, "")
    head, *rows, total = csv.reader(outcome.out.splitlines())
    assert head[:4] == ["layer", "type", "tops", "parameters"]
    for row, wanted in zip(rows, ROWS, strict=True):
        for cell, value in zip(row, wanted, strict=True):
            assert value is None or cell == str(value), (row[0], cell, value)
    for column in range(3, 8):
        assert int(total[column]) == sum(int(row[column]) for row in rows)


def test_a_table_with_another_batch(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    outcome = tool("net_summary", tmp_path / "net.prototxt", "-batch_size", "20", "--phase=TEST")
    assert outcome.out.startswith("the net, TEST, batch of 20\n")
    [conv] = [line for line in outcome.out.splitlines() if line.startswith("conv ")]
    assert conv.split() == ["conv", "Convolution", "20×4×6×6", "112", "0.158", "0.011", "0.000"]
    [b] = [line for line in outcome.out.splitlines() if line.startswith("b ")]
    assert "0 (+720 shared)" in b


def test_data_that_are_not_here(tool: Tool, tmp_path: Path) -> None:
    outcome = tool("net_summary", PROTOTXT / "googlenet" / "train_val.prototxt", "--phase", "TEST", "--csv")
    assert outcome.err == (
        "data/imagenet/val_lmdb is not here: its samples are taken to be 3×224×224, after the text "
        "(--shape corrects it)\n"
    )
    assert outcome.out.splitlines()[-1].split(",")[3] == "13378280"
    assert outcome.out.splitlines()[1] == "data,Data,25x3x224x224 25,0,0,0,15052900,0"


def test_a_shape_that_nothing_tells(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "d" type: "Data" top: "x" data_param { source: "nowhere" batch_size: 4 } }'
    )
    outcome = tool("net_summary", tmp_path / "net.prototxt")
    assert outcome.status == 2
    assert 'layer "d": nowhere is not here, and the text does not tell the shape of a sample' in outcome.error
    assert (
        tool("net_summary", tmp_path / "net.prototxt", "--shape=2x5x7", "--csv").out.splitlines()[1].split(",")[2]
        == "4x2x5x7"
    )
