"""Binary nets of Caffe's forks, whose field numbers collide, in the numbers of bpt's own schema.

The meaning of a number is decided message by message, by its wire type and by the fields of its layer's type. Where two
meanings remain, *signs* decide: content that only one fork writes, anywhere in the net. A field of BVLC's schema gets
another meaning only if its own message cannot be BVLC's and there is a sign besides. Where two readings remain, the net
is refused, and both are named. A field that nothing here reads is omitted and reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError, Message

from bpt.base.errors import BptError, FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import FIXED32, LENGTH, VARINT, MalformedError, WireField, outline, read_content
from bpt.config.proto.dialect_fields import (
    fits,
    is_forks,
    is_sign_of_bpt,
    known_fields,
    stored,
    without_second_values,
)
from bpt.config.proto.dialect_reading import SIGNS_BY_TYPE, Dialect, Fork, Reading, ambiguous
from bpt.config.proto.dialect_settings import (
    BATCH_NORM,
    IN_BATCH_NORM,
    INSIDE,
    LOSS,
    POOLING,
    numbers_of,
    renumbered,
    repeats_axes,
)
from bpt.config.proto.fields import fields_of


class NetOfDialect(NamedTuple):
    """A binary net in the numbers of bpt's schema.

    Attributes:
        net: the net.
        notes: fields that were read in other numbers than the schema's, and omitted fields.
        changed: names of layers, each with a field of BVLC's schema that has another meaning in the fork (``Reading``).
    """

    net: pb.NetParameter
    notes: tuple[str, ...]
    changed: frozenset[tuple[str, str]]


_LAYER = pb.LayerParameter.DESCRIPTOR.fields_by_name
_BY_NUMBER = {field.number: field for field in fields_of(pb.LayerParameter())}
_OF_NET = {field.number: field for field in fields_of(pb.NetParameter())}
_LAYERS, _ENGINE_OF_NET, _NAME, _TYPE, _BLOBS = 100, 9, 1, 2, 7  # of a net; of a layer
_NAME_OF_OLD_LAYER = 4
_CONVOLUTION = _LAYER["convolution_param"].number

# The meanings of a number in a layer in the different Caffes, where it is a message.
_SETTINGS: dict[int, tuple[str, ...]] = {
    45: ("bn_param",),
    137: ("embed_param", "upsample_param"),
    138: ("tile_param", "dense_image_data_param"),
    143: ("input_param", "interp_param"),
    144: ("crop_param", "seg_accuracy_param"),
    145: ("parameter_param", "transpose_param"),
    147: ("swish_param", "center_loss_param", "margin_inner_product_param"),
    148: ("clip_param", "smooth_l1_loss_param", "imresize_param"),
    149: ("reorg_param", "nms_param", "upsample_param", "crop_center_param"),
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
# NVIDIA's numbers of SSD's settings; the layer's type decides which one.
_OF_SSD = (
    "annotated_data_param", "multibox_loss_param", "permute_param", "prior_box_param", "detection_output_param",
    "detection_evaluate_param", "norm_param",
)  # fmt: skip
_SETTINGS |= dict.fromkeys(range(208, 215), _OF_SSD) | {209: (*_OF_SSD, "region_loss_param")}
_LAST_OF_BVLC = 148
# Intel's numbers for layers of any type.
_OF_INTEL = {149: "engine", 150: "multinode", 151: "mn_activation_param"}
# NVIDIA's field, a number where all others have a message.
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
"""The settings that a layer type reads, among those whose numbers collide."""


def read_net(path: str | os.PathLike[str], dialect: Dialect | None = None) -> NetOfDialect:
    """Read the binary net at ``path``, written by any Caffe.

    Args:
        dialect: the Caffe that wrote it; ``None``: the net's own fields must show it, where that matters.

    Raises:
        FileError: the file cannot be read, is damaged, or the meaning of its numbers is ambiguous.
    """
    content = read_content(path, pb.NetParameter)
    try:
        reading = Reading(frozenset(_signs_of_net(content)), dialect)
        net = pb.NetParameter.FromString(_net(content, reading))
    except BptError as error:
        raise FileError(path, str(error)) from None
    except (MalformedError, DecodeError, ValueError):
        raise FileError(path, "is a binary file of weights (caffemodel), but damaged or truncated") from None
    return NetOfDialect(net, tuple(reading.notes), frozenset(reading.changed))


# Signs: content that only one fork writes. None of them is proof, since other forks may use a number otherwise.

_OF_NVIDIAS_NET = {12: VARINT, 13: VARINT, 14: VARINT, 15: FIXED32, 16: VARINT, 17: LENGTH, 18: VARINT, 20: VARINT}
_ENGINES = (b"CAFFE", b"CUDNN", b"MKL2017", b"MKLDNN", b"DNNL")
_OF_SEGNET = ((45, "BN"), (137, "Upsample"), (138, "DenseImageData"))
_ALGORITHMS = (b"direct", b"winograd", b"auto")


def _signs_of_net(net: bytes) -> Iterator[Fork]:
    for each in outline(net):
        number, content = each.number, net[each.start : each.end] if each.wire_type == LENGTH else b""
        if _OF_NVIDIAS_NET.get(number) == each.wire_type:
            yield Fork.NVIDIA
        elif number == _ENGINE_OF_NET and content.startswith(_ENGINES):
            yield Fork.INTEL
        elif number == _LAYERS and each.wire_type == LENGTH:
            yield from _signs_of_layer(content)


def _signs_of_layer(layer: bytes) -> Iterator[Fork]:
    _, kind = _name_and_type(layer)
    if kind in SIGNS_BY_TYPE:
        yield SIGNS_BY_TYPE[kind]
    for each in outline(layer):
        number, field = each.number, _BY_NUMBER.get(each.number)
        if number in _OF_NVIDIA and each.wire_type == VARINT:
            yield Fork.NVIDIA
        if number == _BLOBS and each.wire_type == LENGTH:
            if {12} == {inside.number for inside in outline(layer[each.start : each.end])} & {5, 8, 12}:
                yield Fork.NVIDIA
            continue
        content = layer[each.start : each.end]
        if is_sign_of_bpt(field, each, content):
            yield Fork.BPT
        elif each.wire_type == LENGTH:
            yield from _signs_inside(number, content, kind)
            if field is not None and field.message_type is not None and not is_forks(field) and _is_outlined(content):
                for inside in outline(content):
                    own = field.message_type.fields_by_number.get(inside.number)
                    if is_sign_of_bpt(own, inside, content[inside.start : inside.end]):
                        yield Fork.BPT


def _signs_inside(number: int, content: bytes, kind: str) -> Iterator[Fork]:
    if number == 149 and content.startswith(_ENGINES):
        yield Fork.INTEL
    elif (number, kind) in _OF_SEGNET:
        yield Fork.SEGNET
    elif number == BATCH_NORM:
        for inside in outline(content):
            if found := IN_BATCH_NORM.get((inside.number, inside.wire_type)):
                yield found[0]
    elif number == _CONVOLUTION:
        for inside in outline(content):
            if (inside.number, inside.wire_type) == (21, LENGTH) and content[inside.start : inside.end] in _ALGORITHMS:
                yield Fork.INTEL
    elif (number == POOLING and repeats_axes(content)) or (number == LOSS and numbers_of(content).get(3) == 4):
        yield Fork.INTEL


def _is_outlined(content: bytes) -> bool:
    try:
        return all(True for _ in outline(content))
    except MalformedError:
        return False


def _name_and_type(layer: bytes) -> tuple[str, str]:
    return _text(layer, _NAME), _text(layer, _TYPE)


def _text(message: bytes, number: int) -> str:
    found = [field for field in outline(message) if (field.number, field.wire_type) == (number, LENGTH)]
    return message[found[-1].start : found[-1].end].decode(errors="replace") if found else ""


# Reading


def _net(net: bytes, reading: Reading) -> bytes:
    parts, seen = [], set()
    for each in outline(net):
        number, content, field = each.number, net[each.start : each.end], _OF_NET.get(each.number)
        if each.wire_type == LENGTH and field is not None:
            if number == _LAYERS:
                content = _layer(content, reading)
            elif is_forks(field):
                if not fits(field, each, content) or (number in seen and field.message_type is not None):
                    reading.note(f"omitted field {number} of the net, which is no {field.name}, or a further one")
                    continue
                seen.add(number)
            elif field.message_type is not None:
                name = _text(content, _NAME_OF_OLD_LAYER) if field.name == "layers" else ""
                what = f'layer "{name}"' if name else field.name
                content = known_fields(content, field.message_type, what, name, reading)
        elif (number, each.wire_type) == (11, VARINT) and not reading.is_bpts and not reading.is_only(Fork.NVIDIA):
            if not reading.is_only(Fork.INTEL):
                raise ambiguous("field 11 of the net", "NVIDIA's default_forward_type", "Intel's bn_stats_batch_size")
            number = pb.NetParameter.DESCRIPTOR.fields_by_name["bn_stats_batch_size"].number
        parts.append(stored(number, each, content))
    return b"".join(parts)


def _layer(layer: bytes, reading: Reading) -> bytes:
    name, kind = _name_and_type(layer)
    of_layer = f'layer "{name}"'
    parts, seen = [], set()
    for each in outline(layer):
        content = layer[each.start : each.end]
        number = each.number if reading.is_plain else _number_of(each, content, kind, reading)
        field = _BY_NUMBER.get(each.number if number is None else number)
        if number != each.number and each.number in _BY_NUMBER and not is_forks(_BY_NUMBER[each.number]):
            reading.changed.add((name, _BY_NUMBER[each.number].name))
        if number is None:
            reading.note(f"omitted field {each.number} of {of_layer} ({kind}), which is in no Caffe that bpt knows")
            continue
        if each.wire_type == LENGTH and field is not None and field.message_type is not None:
            if number == _BLOBS:
                content = without_second_values(content, of_layer, reading)
            elif not is_forks(field):
                if number in INSIDE and not reading.is_plain and (number != POOLING or kind == "Pooling"):
                    content = INSIDE[number](content, name, reading)
                content = known_fields(content, field.message_type, f"{field.name} of {of_layer}", name, reading)
        if each.wire_type == LENGTH and field is not None and is_forks(field):
            if not fits(field, each, content) or (number in seen and field.message_type is not None):
                reading.note(f"omitted field {each.number} of {of_layer}, which is no {field.name}, or a further one")
                continue
            seen.add(number)
            if field.name == "bn_param" and not reading.is_plain and _is_pspnets(each.number, content):
                content = renumbered(content, {1: 1000, 2: 1001, 3: 1002})
        parts.append(stored(number, each, content))
    return b"".join(parts)


def _number_of(each: WireField, content: bytes, kind: str, reading: Reading) -> int | None:
    """Return the schema's number of a layer's field; ``None`` if the schema has nothing that it could be."""
    number = each.number
    if each.wire_type == VARINT:
        return _LAYER[_OF_NVIDIA[number]].number if number in _OF_NVIDIA else number
    if each.wire_type != LENGTH or number not in _SETTINGS:
        return number
    read = _READ_BY.get(kind)
    if read in _SETTINGS[number]:
        target: str | None = read
    elif number == 149:
        target = _OF_INTEL[number] if content.startswith(_ENGINES) else None
    elif number in _OF_INTEL:
        target = _OF_INTEL[number] if reading.is_intels else None
    elif number <= _LAST_OF_BVLC:  # settings that its type does not read; BVLC's Caffe accepts them
        target = next((field.name for field in _LAYER.values() if field.number == number), None)
    else:
        target = None
    return _LAYER[target].number if target and _can_be(target, content) else None


def _can_be(target: str, content: bytes) -> bool:
    """Return whether ``content`` can be the field ``target`` of a layer."""
    message = _LAYER[target].message_type
    try:
        if message is None:
            content.decode()
        else:
            kind: type[Message] = type(getattr(pb.LayerParameter(), target))
            return kind.FromString(content).IsInitialized()
    except (DecodeError, ValueError):
        return False
    return True


def _is_pspnets(number: int, param: bytes) -> bool:
    """Return whether settings of a BN are PSPNet's: by their own number, or by a momentum, an eps or ``frozen``."""
    return number == 152 or any(
        each.number in (4, 5) or (each.number == 3 and each.wire_type != VARINT) for each in outline(param)
    )
