"""Binary nets in the forks' numbers. The bytes are put together by hand, number by number, from the forks' schemas."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bpt.errors import FileError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.binary import LENGTH, VARINT, write_varint
from bpt.proto.dialects import Dialect, read_net
from bpt.proto.rewrite import rewrite_net_binary
from bpt.proto.text import parse_text

Value = int | float | str | bytes


def message(*fields: tuple[int, Value]) -> bytes:
    """A message of such fields: a number, a float, a text, or a message."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(write_varint(number << 3 | VARINT) + write_varint(value))
        elif isinstance(value, float):
            parts.append(write_varint(number << 3 | 5) + struct.pack("<f", value))
        else:
            content = value.encode() if isinstance(value, str) else value
            parts.append(write_varint(number << 3 | LENGTH) + write_varint(len(content)) + content)
    return b"".join(parts)


def layer(kind: str, *fields: tuple[int, Value], name: str = "L") -> tuple[int, bytes]:
    return 100, message((1, name), (2, kind), *fields)


def read(folder: Path, *fields: tuple[int, Value]) -> tuple[pb.NetParameter, Dialect]:
    (folder / "net.caffemodel").write_bytes(message((1, "net"), *fields))
    return read_net(folder / "net.caffemodel")


POOLING = layer("Pooling", (121, message((2, 3), (3, 2), (4, 1), (13, 1))), name="bvlc")


@pytest.mark.parametrize(
    ("fields", "dialect", "settings"),
    [
        ([layer("Permute", (202, message((1, 0))))], Dialect.BVLC, "permute_param { order: 0 }"),
        ([layer("Normalize", (206, message((1, 0))))], Dialect.BVLC, "norm_param { across_spatial: false }"),
        ([layer("Swish", (147, message((1, 2.0))))], Dialect.BVLC, "swish_param { beta: 2 }"),
        ([layer("CenterLoss", (147, message((1, 7))))], Dialect.BVLC, "center_loss_param { num_output: 7 }"),
        ([layer("Tile", (138, message((2, 7))))], Dialect.BVLC, "tile_param { tiles: 7 }"),
        ([layer("PriorBox", (203, message((1, 8.0))))], Dialect.BVLC, "prior_box_param { min_size: 8 }"),
        ([layer("PriorBox", (211, message((1, 8.0))))], Dialect.BVLC, "prior_box_param { min_size: 8 }"),
        ([layer("TripletLoss", (203, message((1, 8.0))))], Dialect.BVLC, "triplet_loss_param { margin: 8 }"),
        ([layer("BN", (45, message((3, 1))))], Dialect.BVLC, "bn_param { bn_mode: INFERENCE }"),
        (
            [layer("BN", (152, message((1, message((2, 1.0))), (3, 0.5), (5, 1))))],
            Dialect.BVLC,
            "bn_param { slope_filler { value: 1 } momentum: 0.5 frozen: true }",
        ),
        ([POOLING], Dialect.BVLC, "pooling_param { kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR }"),
        (
            [layer("ReLU", (145, 2), (149, 1), (150, 0))],
            Dialect.NVIDIA,
            "forward_type: FLOAT16 debug: true cudnn_math_override: 0",
        ),
        (
            [layer("BatchNorm", (139, message((6, message((2, 1.0))), (7, 1), (15, 2))))],
            Dialect.NVIDIA,
            "batch_norm_param { bias_filler { value: 1 } scale_bias: true engine: CUDNN }",
        ),
        ([(12, 1), layer("Data", (107, message((11, 2), (14, 1))))], Dialect.NVIDIA,
         "data_param { threads: 2 shuffle: true }"),
        (
            [layer("BatchNorm", (139, message((5, 1), (6, 0), (7, message((2, 3.0))), (10, 1))))],
            Dialect.INTEL,
            "batch_norm_param { use_weight_bias: true bias_term: false filler { value: 3 } relu: true }",
        ),
        (
            [layer("Pooling", (121, message((1, 1), (2, 1), (3, 3), (4, 2), (13, 0))))],
            Dialect.INTEL,
            "pooling_param { pool: AVE pad: 1 kernel_size: 3 stride: 2 avg_include_pad: false }",
        ),
        ([layer("SoftmaxWithLoss", (149, "CAFFE"), (101, message((3, 3), (4, 2.0))))], Dialect.INTEL,
         'engine: "CAFFE" loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 2 }'),
        ([layer("SoftmaxWithLoss", (101, message((3, 4))))], Dialect.INTEL, "loss_param { normalization: NONE }"),
        ([layer("ROIPooling", (154, message((1, 6))))], Dialect.BVLC, "roi_pooling_param { pooled_h: 6 }"),
    ],
)  # fmt: skip
def test_numbers_of_forks(fields: list[tuple[int, Value]], dialect: Dialect, settings: str, tmp_path: Path) -> None:
    net, told = read(tmp_path, *fields)
    assert told is dialect
    name, kind = net.layer[0].name, net.layer[0].type
    assert net.layer[0] == parse_text(f'name: "{name}" type: "{kind}" {settings}', pb.LayerParameter).message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            [layer("ReLU", (145, 2)), layer("SoftmaxWithLoss", (101, message((3, 4))), name="loss")],
            'it is ambiguous what its numbers mean: it has signs of NVIDIA\'s Caffe (field 145 of layer "L") and of '
            'Intel\'s Caffe (loss_param of layer "loss")',
        ),
        (
            [layer("ReLU", (159, b""))],
            'layer "L": field 159 may be reorg_param, and its type, "ReLU", reads none of them',
        ),
        (
            [(11, 1), layer("ReLU")],
            "field 11 of the net is NVIDIA's default_forward_type, or Intel's bn_stats_batch_size",
        ),
        (
            [layer("Pooling", (121, message((3, 3), (3, 2), (4, 1))))],
            'pooling_param of layer "L" has a number for each axis, for which here are kernel_h, kernel_w and so on',
        ),
    ],
)  # fmt: skip
def test_what_stays_ambiguous_is_refused(fields: list[tuple[int, Value]], words: str, tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        read(tmp_path, *fields)
    assert str(caught.value) == f"{tmp_path / 'net.caffemodel'}: {words}"


def test_what_is_written_is_in_the_schemas_numbers_and_read_as_them(tmp_path: Path) -> None:
    intels = layer("BatchNorm", (139, message((4, 3), (5, 1), (10, 1))), (4, "top"))
    pooling = layer("Pooling", (121, message((2, 1), (3, 3), (4, 2))))
    net, _ = read(tmp_path, intels, pooling)
    rewrite_net_binary(tmp_path / "net.caffemodel", tmp_path / "new.caffemodel")
    new = pb.NetParameter.FromString((tmp_path / "new.caffemodel").read_bytes())
    assert [each.type for each in new.layer] == ["BatchNorm", "ReLU", "Pooling"]
    assert new.layer[2] == net.layer[1]
    assert new.layer[2].pooling_param == pb.PoolingParameter(pad=1, kernel_size=3, stride=2)
    rewrite_net_binary(tmp_path / "new.caffemodel", tmp_path / "again.caffemodel")
    assert (tmp_path / "again.caffemodel").read_bytes() == (tmp_path / "new.caffemodel").read_bytes()
