"""Binary nets in the forks' numbers. The bytes are put together by hand, number by number, from the forks' schemas."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.dialect_reading import Dialect
from bpt.config.proto.dialects import NetOfDialect, read_net
from bpt.config.proto.rewrite import rewrite_net_binary
from bpt.config.proto.text import parse_text
from tests.support.dialect_messages import Value, layer, message


def read(folder: Path, *fields: tuple[int, Value], dialect: Dialect | None = None) -> NetOfDialect:
    (folder / "net.caffemodel").write_bytes(message((1, "net"), *fields))
    return read_net(folder / "net.caffemodel", dialect)


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
        # R-FCN's and Intel's normalizer: more than 1 is no share of NVIDIA's label smoothing.
        ([layer("SoftmaxWithLoss", (101, message((3, 3), (4, 128.0))))],
         "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 128 }"),
        ([layer("SoftmaxWithLoss", (101, message((3, 3), (4, 0.5)))), layer("PSROIPooling")],
         "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 0.5 }"),
        ([layer("SoftmaxWithLoss", (145, 1), (101, message((3, 3), (4, 0.1))))],
         "forward_type: FLOAT loss_param { normalization: NONE label_smoothing: 0.1 }"),
        # Numbers that forks have for different things, without a sign, with one, and with another's.
        ([layer("Convolution", (106, message((1, 2), (19, 1))))], "convolution_param { num_output: 2 }"),
        ([layer("Convolution", (145, 1), (106, message((19, 1))))], "forward_type: FLOAT convolution_param { }"),
        ([layer("Convolution", (149, "MKLDNN"), (106, message((19, 1)))), ],
         'engine: "MKLDNN" convolution_param { relu: true }'),
        ([layer("BatchNorm", (139, message((10, 1))))], "batch_norm_param { }"),
        ([layer("Pooling", (121, message((2, 3), (40, 1))))], "pooling_param { kernel_size: 3 }"),
        ([layer("Pooling", (145, 1), (121, message((2, 3), (40, 1))))],
         "forward_type: FLOAT pooling_param { kernel_size: 3 torch_pooling: true }"),
        ([layer("Pooling", (121, message((2, 3), (1000, 1))))], "pooling_param { kernel_size: 3 }"),
        ([layer("Convolution", (106, message((117, 2))))], "convolution_param { }"),
        ([layer("Dropout", (108, message((2, 0), (3, 5)))), layer("PSROIPooling")],
         "dropout_param { scale_train: false }"),
        # Faster R-CNN's and R-FCN's numbers of settings are no signs of bpt, which has them from there.
        ([layer("Dropout", (108, message((2, 0)))), layer("ROIPooling", (8266711, message((1, 6))))],
         "dropout_param { scale_train: false }"),
        ([layer("Dropout", (108, message((2, 0)))), layer("SmoothL1Loss", (8266712, message((1, 3.0))))],
         "dropout_param { scale_train: false }"),
        # What bpt has made of such a net keeps its meaning.
        ([layer("Dropout", (108, message((3, 0)))), layer("ROIPooling", (8266711, message((1, 6))))],
         "dropout_param { scale_train: false }"),
        ([layer("Dropout", (108, message((2, 1)))), layer("BN", (45, message((3, 1))))],
         "dropout_param { sample_weights_test: true }"),
        ([layer("Dropout", (145, 1), (108, message((2, 0), (3, 0))))], "forward_type: FLOAT dropout_param { }"),
        ([layer("Dropout", (108, message((1, 0.25), (2, 0))))], "dropout_param { dropout_ratio: 0.25 }"),
        # MobileNet-YOLO's resize_param is a list, which is not to be merged.
        ([layer("AnnotatedData", (100, message((8, message((3, 300), (6, 1.0))), (8, message((3, 416), (4, 416))))))],
         "transform_param { resize_param { height: 300 pad_value: 1 } }"),
        ([layer("Data", (100, message((8, message((3, 300))))))], "transform_param { }"),
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


@pytest.mark.parametrize("sign", [(9, "MKLDNN"), layer("Convolution", (106, message((21, "direct"))), name="c")])
def test_signs_of_intels_caffe(sign: tuple[int, Value], tmp_path: Path) -> None:
    net = read(tmp_path, layer("Pooling", (121, message((3, 3), (4, 2)))), sign).net
    assert net.layer[0].pooling_param == pb.PoolingParameter(kernel_size=3, stride=2)


FORKS_NUMBERS = [
    field.number
    for field in pb.LayerParameter.DESCRIPTOR.fields
    if field.number > 148 and field.message_type is not None
]


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x02ab\x10\x01", b"\x08\x02", b"abc"])
def test_messages_of_other_caffes_are_left_out_and_no_damage(content: bytes, tmp_path: Path) -> None:
    """At each number that bpt's schema has and BVLC's has not: in layers, in nets, in settings."""
    of_layer = [(number, content) for number in FORKS_NUMBERS]
    inside = [layer("Data", (100, message(*((number, content) for number in range(8, 17)))), name="data"),
              layer("AnnotatedData", (100, message((14, content))), name="ssd"),
              layer("Mine", (106, message((7, message((9, content))))), (121, message((2, 3))), name="mine"),
              ]  # fmt: skip
    net = read(tmp_path, layer("ReLU", *of_layer), (9, content), (10, content), (101, content), *inside).net
    assert [each.name for each in net.layer] == ["L", "data", "ssd", "mine"]
    assert net.layer[3].pooling_param.kernel_size == 3
    rewrite_net_binary(tmp_path / "net.caffemodel", tmp_path / "new.caffemodel")


def test_raw_data_do_not_take_the_place_of_data(tmp_path: Path) -> None:
    """Another Caffe's field 12 of a blob is no ``raw_data`` of NVIDIA's if the values are where BVLC's are."""
    blob = pb.BlobProto(data=[7], shape=pb.BlobShape(dim=[1])).SerializeToString() + message((12, b"abcd"), (10, 1))
    net = read(tmp_path, layer("Scale", (7, blob))).net
    assert not net.layer[0].blobs[0].HasField("raw_data") and list(net.layer[0].blobs[0].data) == [7]


ENGINE = layer("ReLU", (149, "MKL2017"), name="intels")
HALF = layer("ReLU", (145, 2), name="nvidias")


@pytest.mark.parametrize(
    ("fields", "readings"),
    [
        ([layer("SoftmaxWithLoss", (101, message((3, 3), (4, 0.5))))], ("label_smoothing 0.5", "PRE_FIXED")),
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
