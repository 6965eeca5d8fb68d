"""A network file's layers and shapes, though its data may not be here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_file import read_net_file
from tests.support.paths import GOLDEN

NET = """
layer {{ name: "d" type: "{type}" top: "x" top: "label" include {{ phase: TRAIN }} {more} }}
layer {{ name: "d" type: "Data" top: "x" top: "label" include {{ phase: TEST }}
        data_param {{ source: "{test}" batch_size: 5 backend: LMDB }} }}
layer {{ name: "r" type: "ReLU" bottom: "x" top: "x" }}
layer {{ name: "a" type: "TanH" bottom: "x" top: "a" }}
layer {{ name: "b" type: "TanH" bottom: "x" top: "b" }}
"""
DATA = 'data_param {{ source: "nowhere" batch_size: 4 }} {more}'
IMAGES = 'image_data_param {{ source: "nowhere.txt" batch_size: 4 new_height: 7 new_width: 9 {more} }}'


def write(folder: Path, type: str = "Data", more: str = DATA.format(more="")) -> str:
    test = GOLDEN / "lmdb" / "color_lmdb"
    (folder / "net.prototxt").write_text(NET.format(type=type, more=more, test=test))
    return str(folder / "net.prototxt")


def test_data_that_are_here(tmp_path: Path) -> None:
    net = read_net_file(write(tmp_path), pb.TEST)
    assert [number for number, _ in net.layers] == [1, 2, 3, 4]
    assert net.shapes[1, 0] == net.shapes[2, 0] == net.shapes[4, 0] == (5, 3, 28, 28)
    assert net.shapes[1, 1] == (5,)
    assert net.notes == ()
    assert net.has_phases


@pytest.mark.parametrize(
    ("type", "more", "shape"),
    [
        ("Data", DATA.format(more="transform_param { crop_size: 6 }"), (4, 3, 6, 6)),
        ("Data", DATA.format(more="transform_param { crop_size: 6 mean_value: 3 }"), (4, 1, 6, 6)),
        ("ImageData", IMAGES.format(more=""), (4, 3, 7, 9)),
        ("ImageData", IMAGES.format(more="is_color: false"), (4, 1, 7, 9)),
    ],
)
def test_data_that_are_not_here(type: str, more: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    net = read_net_file(write(tmp_path, type, more), pb.TRAIN)
    assert net.shapes[0, 0] == net.shapes[3, 0] == shape
    [note] = net.notes
    words = "×".join(map(str, shape[1:]))
    assert note.endswith(f" is not here: its samples are taken to be {words}, after the text (--shape corrects it)")


def test_unknown_types_have_no_shapes(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text('layer { name: "f" type: "Flip" top: "x" flip_param { a: 1 } } layer { name: "c" type: "Concat" }')
    net = read_net_file(str(path), pb.TEST, needs_shapes=False)
    assert [spec.type for _, spec in net.layers] == ["Flip", "Concat"]
    (note,) = net.notes
    assert note.startswith(f'shapes are not known: {path}:1:19: layer "f": unknown layer type "Flip"; a type')
    with pytest.raises(PrototxtError, match='unknown layer type "Flip"'):
        read_net_file(str(path), pb.TEST)


def test_a_net_that_the_assumed_shape_does_not_fit(tmp_path: Path) -> None:
    """It is not said to be wrong without a word on what was assumed."""
    data = DATA.format(more="transform_param { crop_size: 6 }")
    path = tmp_path / "net.prototxt"
    path.write_text(
        f'layer {{ name: "d" type: "Data" top: "x" {data} }}\nlayer {{ name: "k" type: "Convolution" bottom: "x" '
        'top: "k" convolution_param { num_output: 4 group: 2 kernel_size: 1 } }'
    )
    assumed = r"; nowhere is not here: its samples are taken to be 3×6×6, after the text \(--shape corrects it\)$"
    with pytest.raises(UserError, match=r'^.*net.prototxt:2:.* layer "k": .*' + assumed):
        read_net_file(str(path), pb.TRAIN)
    assert read_net_file(str(path), pb.TRAIN, shape=(2, 6, 6)).shapes[1, 0] == (4, 4, 6, 6)


def test_a_shape_and_a_batch_that_are_given(tmp_path: Path) -> None:
    net = read_net_file(write(tmp_path), pb.TRAIN, shape=(2, 5), batch=9)
    assert (net.shapes[0, 0], net.shapes[0, 1], net.notes) == ((9, 2, 5), (9,), ())


def test_shapes_that_are_not_known(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(PrototxtError, match=r'net.prototxt:2:1: layer "d": nowhere is not here, and the text does not'):
        read_net_file(path, pb.TRAIN)
    net = read_net_file(path, pb.TRAIN, needs_shapes=False)
    assert (net.graph, net.shapes) == (None, {})
    assert net.notes[0].startswith("shapes are not known: ")


def test_no_layer_of_that_phase(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text('layer { name: "a" type: "Input" top: "a" include { phase: TEST } }')
    with pytest.raises(PrototxtError, match="the net has no layer for phase TRAIN"):
        read_net_file(str(tmp_path / "net.prototxt"), pb.TRAIN)
