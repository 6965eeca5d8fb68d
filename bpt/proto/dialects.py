"""Binary nets of Caffe's forks, whose numbers of fields collide, in the numbers of bpt's own schema.

A fork is told by what it alone writes: a number stored in a way that no other Caffe stores it, settings that the
layer's type reads in that fork, a pooling that cannot be in another's numbers. What stays ambiguous is refused. Weights
are read without this, for names and blobs have the same numbers everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from enum import Enum

from google.protobuf.message import DecodeError

from bpt.errors import BptError, FileError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.binary import (
    LENGTH,
    VARINT,
    MalformedError,
    WireField,
    outline,
    read_content,
    read_varint,
    write_varint,
)


class Dialect(Enum):
    """Whose numbers a net is in, where Caffes differ in what a number means and how it is stored tells nothing."""

    BVLC = "BVLC's Caffe"
    NVIDIA = "NVIDIA's Caffe"
    INTEL = "Intel's Caffe"


_LAYER = pb.LayerParameter.DESCRIPTOR.fields_by_name
_LAYERS, _NAME, _TYPE, _BLOBS = 100, 1, 2, 7  # of a net; of a layer

# What a number in a layer is, in one Caffe or another, where it is a message.
_SETTINGS: dict[int, tuple[str, ...]] = {
    45: ("bn_param",),
    137: ("embed_param", "upsample_param"),
    138: ("tile_param", "dense_image_data_param"),
    143: ("input_param", "interp_param"),
    144: ("crop_param", "seg_accuracy_param"),
    145: ("parameter_param", "transpose_param"),
    147: ("swish_param", "center_loss_param", "margin_inner_product_param"),
    148: ("clip_param", "smooth_l1_loss_param", "imresize_param"),
    149: ("reorg_param", "nms_param", "crop_center_param"),
    150: ("correlation_param", "upsample_param"),
    151: ("recurrent_param", "l1_loss_param"),
    152: ("bn_param", "box_annotator_ohem_param"),
    153: ("psroi_pooling_param",),
    154: ("roi_pooling_param",),
    159: ("reorg_param",),
    202: ("permute_param",),
    203: ("prior_box_param", "triplet_loss_param"),
    206: ("norm_param",),
    600: ("region_loss_param",),
    6660: ("video_data_param",),
}
# NVIDIA's numbers of SSD's settings, of which the layer's type tells which.
_OF_SSD = (
    "annotated_data_param", "multibox_loss_param", "permute_param", "prior_box_param", "detection_output_param",
    "detection_evaluate_param", "norm_param",
)  # fmt: skip
_SETTINGS |= dict.fromkeys(range(208, 215), _OF_SSD) | {209: (*_OF_SSD, "region_loss_param")}
_LAST_OF_BVLC = 148
# Intel's, of layers of any type.
_OF_INTEL = {149: "engine", 150: "multinode", 151: "mn_activation_param"}
# NVIDIA's, stored as a number where all others have a message.
_OF_NVIDIA = {
    145: "forward_type", 146: "backward_type", 147: "forward_math", 148: "backward_math", 149: "debug",
    150: "cudnn_math_override",
}  # fmt: skip
_READ_BY = {
    "BN": "bn_param", "BoxAnnotatorOHEM": "box_annotator_ohem_param", "CenterLoss": "center_loss_param",
    "Clip": "clip_param", "Correlation": "correlation_param", "Crop": "crop_param",
    "CropCenter": "crop_center_param",
    "DenseImageData": "dense_image_data_param", "Embed": "embed_param", "ImResize": "imresize_param",
    "Input": "input_param", "Interp": "interp_param", "L1Loss": "l1_loss_param", "LSTM": "recurrent_param",
    "MarginInnerProduct": "margin_inner_product_param", "Nms": "nms_param", "Normalize": "norm_param",
    "Parameter": "parameter_param", "Permute": "permute_param", "PriorBox": "prior_box_param",
    "PSROIPooling": "psroi_pooling_param", "RNN": "recurrent_param", "ROIPooling": "roi_pooling_param",
    "RegionLoss": "region_loss_param", "Reorg": "reorg_param", "SegAccuracy": "seg_accuracy_param",
    "SmoothL1Loss": "smooth_l1_loss_param", "Swish": "swish_param", "Tile": "tile_param",
    "Transpose": "transpose_param", "TripletLoss": "triplet_loss_param", "Upsample": "upsample_param",
    "VideoData": "video_data_param", "AnnotatedData": "annotated_data_param", "MultiBoxLoss": "multibox_loss_param",
    "DetectionOutput": "detection_output_param", "DetectionEvaluate": "detection_evaluate_param",
}  # fmt: skip
"""The settings that a type of a layer reads, of those whose numbers collide."""


def read_net(path: str | os.PathLike[str]) -> tuple[pb.NetParameter, Dialect]:
    """The binary net at ``path`` in the numbers of bpt's schema, and whose numbers it was in.

    Raises:
        FileError: it cannot be read, is damaged, or what its numbers mean is ambiguous.
    """
    content = read_content(path, pb.NetParameter)
    try:
        dialect = dialect_of(content)
        return pb.NetParameter.FromString(_net(content, dialect)), dialect
    except BptError as error:
        raise FileError(path, str(error)) from None
    except (MalformedError, DecodeError, ValueError):
        raise FileError(path, "is a binary file of weights (caffemodel), but damaged or truncated") from None


def dialect_of(net: bytes) -> Dialect:
    """Whose numbers the serialised ``net`` is in. Raises BptError if it has signs of two, and MalformedError."""
    signs = {Dialect.NVIDIA: "", Dialect.INTEL: ""}
    for field in outline(net):
        if 12 <= field.number <= 20:
            signs[Dialect.NVIDIA] = f"field {field.number} of the net"
        elif (field.number, field.wire_type) == (_LAYERS, LENGTH):
            for dialect, sign in _signs(net[field.start : field.end]):
                signs[dialect] = sign
    found = [dialect for dialect, sign in signs.items() if sign]
    if len(found) == len(signs):
        told = " and ".join(f"of {dialect.value} ({sign})" for dialect, sign in signs.items())
        raise BptError(f"it is ambiguous what its numbers mean: it has signs {told}")
    return found[0] if found else Dialect.BVLC


def _signs(layer: bytes) -> Iterator[tuple[Dialect, str]]:
    name, kind = _name_and_type(layer)
    words = f'of layer "{name}"'
    for field in outline(layer):
        number, stored, content = field.number, field.wire_type, layer[field.start : field.end]
        if number in _OF_NVIDIA and stored == VARINT:
            yield Dialect.NVIDIA, f"field {number} {words}"
        elif number == 149 and stored == LENGTH and _READ_BY.get(kind) not in _SETTINGS[149]:
            yield Dialect.INTEL, f"field {number} {words}"
        elif number == _BLOBS and stored == LENGTH and any(each.number == 12 for each in outline(content)):
            yield Dialect.NVIDIA, f"raw_data {words}"
        elif number == _LAYER["batch_norm_param"].number and stored == LENGTH:
            yield from ((dialect, f"batch_norm_param {words}") for dialect in _of_batch_norm(content))
        elif kind == "Pooling" and number == _LAYER["pooling_param"].number and not _can_pool(content):
            yield Dialect.INTEL, f"pooling_param {words}"
        elif number == _LAYER["loss_param"].number and stored == LENGTH and _numbers(content).get(3) == 4:
            yield Dialect.INTEL, f"loss_param {words}"


def _of_batch_norm(param: bytes) -> Iterator[Dialect]:
    for field in outline(param):
        if (field.number, field.wire_type) in ((5, LENGTH), (6, LENGTH), (7, VARINT), (15, VARINT)):
            yield Dialect.NVIDIA
        elif (field.number, field.wire_type) in ((5, VARINT), (6, VARINT), (7, LENGTH)):
            yield Dialect.INTEL


def _can_pool(param: bytes) -> bool:
    """Whether a pooling is possible in BVLC's numbers; Intel's ``pad``, ``kernel_size`` and ``stride`` are 2, 3, 4."""
    found = _numbers(param)
    if found.get(12):  # global_pooling
        return True
    if 2 in found:
        return found.get(4, 0) < found[2]
    return 5 in found and 6 in found and found.get(9, 0) < found[5] and found.get(10, 0) < found[6]


def _numbers(message: bytes) -> dict[int, int]:
    """The numbers in a message that are stored as such, by their fields'; of several the last."""
    return {
        field.number: read_varint(message, field.start)[0] for field in outline(message) if field.wire_type == VARINT
    }


def _name_and_type(layer: bytes) -> tuple[str, str]:
    texts = {
        field.number: layer[field.start : field.end].decode(errors="replace")
        for field in outline(layer)
        if field.number in (_NAME, _TYPE) and field.wire_type == LENGTH
    }
    return texts.get(_NAME, ""), texts.get(_TYPE, "")


def _net(net: bytes, dialect: Dialect) -> bytes:
    parts = []
    for field in outline(net):
        number, content = field.number, net[field.start : field.end]
        if number == _LAYERS and field.wire_type == LENGTH:
            content = _layer(content, dialect)
        elif number == 11 and field.wire_type == VARINT and dialect is not Dialect.NVIDIA:
            if dialect is Dialect.BVLC:
                raise BptError("field 11 of the net is NVIDIA's default_forward_type, or Intel's bn_stats_batch_size")
            number = pb.NetParameter.DESCRIPTOR.fields_by_name["bn_stats_batch_size"].number
        parts.append(_stored(number, field, content))
    return b"".join(parts)


def _layer(layer: bytes, dialect: Dialect) -> bytes:
    name, kind = _name_and_type(layer)
    parts = []
    for field in outline(layer):
        content = layer[field.start : field.end]
        target = _target(field, name, kind)
        number = field.number if target is None else _LAYER[target].number
        if field.wire_type == LENGTH:
            for inside, numbers in _INSIDE.get(dialect, {}).items():
                if number == _LAYER[inside].number:
                    content = _renumbered(content, numbers, f'{inside} of layer "{name}"')
            if target == "bn_param" and _is_pspnets(field.number, content):
                content = _renumbered(content, {1: 1000, 2: 1001, 3: 1002}, "")
            if dialect is Dialect.INTEL and number == _LAYER["loss_param"].number:
                content = _normalization(content)
        parts.append(_stored(number, field, content))
    return b"".join(parts)


def _target(field: WireField, name: str, kind: str) -> str | None:
    """The field of the schema that ``field`` is; None: that of its number."""
    number = field.number
    if field.wire_type == VARINT:
        return _OF_NVIDIA.get(number)
    if field.wire_type != LENGTH or number not in _SETTINGS:
        return None
    read = _READ_BY.get(kind)
    if read in _SETTINGS[number]:
        return read
    if number in _OF_INTEL:
        return _OF_INTEL[number]
    if number <= _LAST_OF_BVLC:  # settings that its type does not read, as BVLC's Caffe takes them
        return None
    meanings = " or ".join(_SETTINGS[number])
    raise BptError(f'layer "{name}": field {number} may be {meanings}, and its type, "{kind}", reads none of them')


# Where a fork has other numbers than the schema, in the settings of BVLC's types.
_INSIDE: Mapping[Dialect, Mapping[str, Mapping[int, int]]] = {
    Dialect.NVIDIA: {
        "batch_norm_param": {5: 1001, 6: 1002, 7: 1003, 15: 4},
        "data_param": {11: 1001, 14: 1000},
    },
    Dialect.INTEL: {
        "batch_norm_param": {5: 1004, 6: 1005, 7: 1006, 8: 1002},
        "data_param": {11: 1000},
        "pooling_param": {2: 4, 3: 2, 4: 3, 5: 9, 6: 10, 7: 5, 8: 6, 9: 7, 10: 8, 13: 1001},
    },
}
_ONCE = ("pooling_param",)  # settings in which a number may stand once only, whatever the fork allows


def _renumbered(message: bytes, numbers: Mapping[int, int], what: str) -> bytes:
    parts: list[bytes] = []
    seen: set[int] = set()
    for field in outline(message):
        if what.startswith(_ONCE) and field.number in numbers:
            if field.number in seen:
                raise BptError(f"{what} has a number for each axis, for which here are kernel_h, kernel_w and so on")
            seen.add(field.number)
        parts.append(_stored(numbers.get(field.number, field.number), field, message[field.start : field.end]))
    return b"".join(parts)


def _normalization(param: bytes) -> bytes:
    """Intel's PRE_FIXED is 3, and NONE 4; its normalizer is field 4, and 5, label_smoothing, is read by no layer."""
    modes = {3: pb.LossParameter.PRE_FIXED, 4: pb.LossParameter.NONE}
    parts = []
    for field in outline(param):
        number, content = field.number, param[field.start : field.end]
        if (number, field.wire_type) == (3, VARINT):
            mode = read_varint(param, field.start)[0]
            content = write_varint(modes.get(mode, mode))
        elif number == 5:
            continue
        elif number == 4:
            number = pb.LossParameter.DESCRIPTOR.fields_by_name["pre_fixed_normalizer"].number
        parts.append(_stored(number, field, content))
    return b"".join(parts)


def _is_pspnets(number: int, param: bytes) -> bool:
    """Whether settings of a BN are PSPNet's: by their own number, or by a momentum, an eps or ``frozen``."""
    return number == 152 or any(
        field.number in (4, 5) or (field.number == 3 and field.wire_type != VARINT) for field in outline(param)
    )


def _stored(number: int, field: WireField, content: bytes) -> bytes:
    length = write_varint(len(content)) if field.wire_type == LENGTH else b""
    return write_varint(number << 3 | field.wire_type) + length + content
