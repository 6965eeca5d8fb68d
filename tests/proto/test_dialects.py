"""Binary nets in the forks' numbers. The bytes are put together by hand, number by number, from the forks' schemas."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import LENGTH, VARINT, outline, write_varint
from bpt.config.proto.dialect_reading import Dialect
from bpt.config.proto.dialects import NetOfDialect, read_net
from bpt.config.proto.rewrite import rewrite_net_binary
from bpt.config.proto.text import parse_text

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


def read(folder: Path, *fields: tuple[int, Value], dialect: Dialect | None = None) -> NetOfDialect:
    (folder / "net.caffemodel").write_bytes(message((1, "net"), *fields))
    return read_net(folder / "net.caffemodel", dialect)


BVLCS_LAYER = {field.number for field in pb.LayerParameter.DESCRIPTOR.fields if field.number <= 144}
POOLING = layer("Pooling", (121, message((2, 3), (3, 2), (4, 1), (13, 1))), name="bvlc")


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ([layer("Permute", (202, message((1, 0))))], "permute_param { order: 0 }"),
        ([layer("Normalize", (206, message((1, 0))))], "norm_param { across_spatial: false }"),
        ([layer("Swish", (147, message((1, 2.0))))], "swish_param { beta: 2 }"),
        ([layer("CenterLoss", (147, message((1, 7))))], "center_loss_param { num_output: 7 }"),
        ([layer("Tile", (138, message((2, 7))))], "tile_param { tiles: 7 }"),
        ([layer("PriorBox", (203, message((1, 8.0))))], "prior_box_param { min_size: 8 }"),
        ([layer("PriorBox", (211, message((1, 8.0))))], "prior_box_param { min_size: 8 }"),
        ([layer("TripletLoss", (203, message((1, 8.0))))], "triplet_loss_param { margin: 8 }"),
        ([layer("BN", (45, message((3, 1))))], "bn_param { bn_mode: INFERENCE }"),
        (
            [layer("BN", (152, message((1, message((2, 1.0))), (3, 0.5), (5, 1))))],
            "bn_param { slope_filler { value: 1 } momentum: 0.5 frozen: true }",
        ),
        ([POOLING], "pooling_param { kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR }"),
        (
            [layer("ReLU", (145, 2), (149, 1), (150, 0))],
            "forward_type: FLOAT16 debug: true cudnn_math_override: 0",
        ),
        (
            [layer("BatchNorm", (139, message((6, message((2, 1.0))), (7, 1), (15, 2))))],
            "batch_norm_param { bias_filler { value: 1 } scale_bias: true engine: CUDNN }",
        ),
        ([(12, 1), layer("Data", (107, message((11, 2), (14, 1))))], "data_param { threads: 2 shuffle: true }"),
        (
            [layer("BatchNorm", (139, message((5, 1), (6, 0), (7, message((2, 3.0))), (10, 1))))],
            "batch_norm_param { use_weight_bias: true bias_term: false filler { value: 3 } relu: true }",
        ),
        (
            [layer("Pooling", (121, message((1, 1), (2, 1), (3, 3), (4, 2), (13, 0))), (149, "CAFFE"))],
            'engine: "CAFFE" pooling_param { pool: AVE pad: 1 kernel_size: 3 stride: 2 avg_include_pad: false }',
        ),
        ([layer("SoftmaxWithLoss", (149, "CAFFE"), (101, message((3, 3), (4, 2.0))))],
         'engine: "CAFFE" loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 2 }'),
        ([layer("SoftmaxWithLoss", (101, message((3, 4))))], "loss_param { normalization: NONE }"),
        ([layer("ROIPooling", (154, message((1, 6))))], "roi_pooling_param { pooled_h: 6 }"),
        # Intel's 1.0.5 to 1.1.1a has a number for each axis.
        ([layer("Pooling", (121, message((3, 3), (3, 5), (4, 1))))],
         "pooling_param { kernel_h: 3 kernel_w: 5 stride: 1 }"),
        # Its other releases have BVLC's numbers, which a kernel that is not larger than its padding shows.
        ([layer("Pooling", (121, message((2, 3), (3, 2))), (149, "MKLDNN"))],
         'engine: "MKLDNN" pooling_param { kernel_size: 3 stride: 2 }'),
        # Without a sign of Intel's, a pooling that could be either is BVLC's.
        ([layer("Pooling", (121, message((2, 2), (3, 3), (4, 1))))],
         "pooling_param { kernel_size: 2 stride: 3 pad: 1 }"),
        ([layer("Pooling", (121, message((12, 1))), (149, "CAFFE"))],
         'engine: "CAFFE" pooling_param { global_pooling: true }'),
        ([layer("Upsample", (149, message((1, 2))))], "upsample_param { scale: 2 }"),
        ([layer("Softmax", (101, message((3, 3))))], "loss_param { normalization: NONE }"),
        # What no Caffe is known to have is left out.
        ([layer("Convolution", (149, message((1, 2))))], ""),
        ([layer("ReLU", (159, b""))], ""),
        ([layer("Mine", (203, b"\xff"))], ""),
        ([layer("BatchNorm", (139, message((5, b"\xff"))))], "batch_norm_param { }"),
    ],
)  # fmt: skip
def test_numbers_of_forks(fields: list[tuple[int, Value]], settings: str, tmp_path: Path) -> None:
    net = read(tmp_path, *fields).net
    name, kind = net.layer[0].name, net.layer[0].type
    assert net.layer[0] == parse_text(f'name: "{name}" type: "{kind}" {settings}', pb.LayerParameter).message


ENGINE = layer("ReLU", (149, "MKL2017"), name="intels")
HALF = layer("ReLU", (145, 2), name="nvidias")


@pytest.mark.parametrize(
    ("fields", "readings"),
    [
        ([(11, 1), layer("ReLU")], ("field 11 of the net", "default_forward_type", "bn_stats_batch_size")),
        ([layer("Pooling", (121, message((2, 2), (3, 3), (4, 1)))), ENGINE],
         ("kernel 2 stride 3 pad 1", "kernel 3 stride 1 pad 2")),
        # One sign alone: no pooling of BVLC's, but nothing else is of Intel's.
        ([layer("Pooling", (121, message((2, 1), (3, 3), (4, 2))))],
         ("kernel 1 stride 3 pad 2", "kernel 3 stride 2 pad 1")),
        ([layer("Pooling", (121, message((2, 3), (3, 2), (13, 1)))), ENGINE], ("round_mode", "avg_include_pad")),
        ([layer("SoftmaxWithLoss", (101, message((3, 3)))), ENGINE], ("NONE", "PRE_FIXED")),
        ([layer("SoftmaxWithLoss", (101, message((3, 3), (4, 0.5)))), ENGINE, HALF], ("NONE", "PRE_FIXED")),
        ([layer("Data", (107, message((11, 1)))), ENGINE, HALF], ("threads", "shuffle")),
    ],
)  # fmt: skip
def test_two_readings_are_refused_with_both(
    fields: list[tuple[int, Value]], readings: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(FileError) as caught:
        read(tmp_path, *fields)
    assert all(words in str(caught.value) for words in readings)


@pytest.mark.parametrize(
    ("dialect", "settings"),
    [
        (Dialect.BVLC, "kernel_size: 1 stride: 3 pad: 2"),
        (Dialect.INTEL, "kernel_size: 1 stride: 3 pad: 2"),
        (Dialect.INTEL_1_0_5, "kernel_size: 3 stride: 2 pad: 1"),
    ],
)
def test_who_knows_the_caffe_may_say_so(dialect: Dialect, settings: str, tmp_path: Path) -> None:
    net = read(tmp_path, layer("Pooling", (121, message((2, 1), (3, 3), (4, 2)))), dialect=dialect).net
    assert net.layer[0].pooling_param == parse_text(settings, pb.PoolingParameter).message


def unknown_fields() -> st.SearchStrategy[bytes]:
    """A field of any number and wire type, as some Caffe that nobody here knows may write it."""
    numbers = st.integers(1, 20) | st.integers(100, 300) | st.integers(1, 2**29 - 1)
    values = st.integers(0, 2**40) | st.binary(max_size=12) | st.floats(width=32) | st.sampled_from(["CAFFE", "MKLDNN"])
    return st.builds(lambda number, value: message((number, value)), numbers, values)


def known_numbers(kind: type[Message]) -> set[int]:
    return {field.number for field in kind.DESCRIPTOR.fields}


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    st.fixed_dictionaries({}, optional={name: st.integers(0, 4) for name in ("kernel_size", "stride", "pad")}),
    st.fixed_dictionaries({}, optional={"normalization": st.integers(0, 3), "normalize": st.booleans()}),
    st.lists(unknown_fields(), max_size=3),
    st.lists(unknown_fields(), max_size=2),
)
def test_no_known_field_of_bvlcs_is_ever_changed(
    pooling: dict[str, int], loss: dict[str, int], of_layer: list[bytes], of_net: list[bytes]
) -> None:
    """Whatever stands beside them: they are as they were, or the file is refused."""
    known = pb.LayerParameter(name="p", type="Pooling", pooling_param=pooling, loss_param=loss, bottom=["b"])
    kept = [each for each in of_layer if next(outline(each)).number not in BVLCS_LAYER]
    beside = [each for each in of_net if next(outline(each)).number not in known_numbers(pb.NetParameter)]
    net = message((1, "net"), (100, known.SerializeToString() + b"".join(kept))) + b"".join(beside)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "net.caffemodel", Path(folder) / "new.caffemodel"
        source.write_bytes(net)
        try:
            rewrite_net_binary(source, target)
        except FileError:
            return
        (layer,) = pb.NetParameter.FromString(target.read_bytes()).layer
    for name in ("name", "type", "bottom", "pooling_param", "loss_param"):
        assert getattr(layer, name) == getattr(known, name)


def test_what_is_written_is_in_the_schemas_numbers_and_read_as_them(tmp_path: Path) -> None:
    intels = layer("BatchNorm", (139, message((4, 3), (5, 1), (10, 1))), (4, "top"))
    pooling = layer("Pooling", (121, message((2, 1), (3, 3), (4, 2))))
    net = read(tmp_path, intels, pooling).net
    rewrite_net_binary(tmp_path / "net.caffemodel", tmp_path / "new.caffemodel")
    new = pb.NetParameter.FromString((tmp_path / "new.caffemodel").read_bytes())
    assert [each.type for each in new.layer] == ["BatchNorm", "ReLU", "Pooling"]
    assert new.layer[2] == net.layer[1]
    assert new.layer[2].pooling_param == pb.PoolingParameter(pad=1, kernel_size=3, stride=2)
    rewrite_net_binary(tmp_path / "new.caffemodel", tmp_path / "again.caffemodel")
    assert (tmp_path / "again.caffemodel").read_bytes() == (tmp_path / "new.caffemodel").read_bytes()
