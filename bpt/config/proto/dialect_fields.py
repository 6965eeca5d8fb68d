"""The fields of forks inside the messages of BVLC's Caffe: which of them a binary net may be read with.

The number of a fork's field has a meaning only in that fork. Such a field is read if the net has a sign of its fork and
none of another that has the number too, or if it has one of bpt's own numbers. Otherwise it is omitted, with a note. It
never gets another meaning. :func:`bpt.config.proto.fields.is_own` says which fields are BVLC's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import LENGTH, WireField, outline, wire_types, write_varint
from bpt.config.proto.dialect_reading import Fork, Reading
from bpt.config.proto.fields import FIRST_OWN_NUMBER, is_message, is_own, is_repeated

# The owners of numbers below bpt's own that messages of BVLC's have in bpt's schema. Other numbers are read
# in bpt's own files only.
_OWNERS: Mapping[str, Mapping[int, tuple[Fork, ...]]] = {
    "ConvolutionParameter": dict.fromkeys((19, 20, 21), (Fork.INTEL,)),
    "InnerProductParameter": {7: (Fork.INTEL,)},
    "ConcatParameter": {3: (Fork.INTEL,)},
    "EltwiseParameter": {4: (Fork.INTEL,)},
    "FillerParameter": {9: (Fork.INTEL,)},
    "BatchNormParameter": {4: (Fork.INTEL, Fork.NVIDIA), 9: (Fork.INTEL,), 10: (Fork.INTEL,)},
    "PoolingParameter": {40: (Fork.NVIDIA,)},
    "LossParameter": {4: (Fork.NVIDIA,)},
    "ELUParameter": {2: (Fork.NVIDIA,)},
    "DataParameter": dict.fromkeys((12, 13, 16), (Fork.NVIDIA,)),
    "TransformationParameter": dict.fromkeys(range(8, 15), (Fork.SSD,)) | dict.fromkeys((15, 16), (Fork.INTEL,)),
    "ImageDataParameter": {15: (Fork.DEEPLAB,), 16: (Fork.DEEPLAB,)},
}
# Fields that bpt reads as fields of BVLC's (``upgrade.fork_upgrades``), in numbers that no fork writes.
_NEVER_IN_FILES = frozenset(("ceil_mode", "hole", "hole_h", "hole_w"))
# The upgrade turns these into BVLC's fields: the parameter or the layers change.
_CHANGING = {"torch_pooling": "pooling_param", "relu": "relu"}
# Fields of the old layers, which have Caffe's own numbers above bpt's first.
_OF_OLD_LAYERS = frozenset(("bpt.V1LayerParameter.bn_param", "bpt.V1LayerParameter.unpooling_param"))
# Faster R-CNN's and R-FCN's numbers of layers' settings, which bpt's schema has, too.
_FIRST_OF_RFCN = 10001
_BLOB_VALUES, _RAW = frozenset((5, 6, 8, 9)), frozenset((10, 11, 12, 13))


def is_forks(field: FieldDescriptor) -> bool:
    """Return whether BVLC's Caffe does not have ``field``, in today's layers or in old ones."""
    return is_own(field) or field.full_name in _OF_OLD_LAYERS


def fits(field: FieldDescriptor, each: WireField, content: bytes) -> bool:
    """Return whether ``content`` can be a value of ``field``: it parses, with its texts and required fields."""
    if each.wire_type not in wire_types(field):
        return False
    assert field.containing_type is not None
    try:
        holder = GetMessageClass(field.containing_type)()
        holder.MergeFromString(stored(field.number, each, content))
        return _is_readable(holder)
    except (DecodeError, ValueError):
        return False


def _is_readable(message: Message) -> bool:
    for field, value in message.ListFields():  # raises ValueError for a text that is not UTF-8
        if is_message(field):
            values: list[Any] = list(value) if is_repeated(field) else [value]
            if not all(one.IsInitialized() and _is_readable(one) for one in values):
                return False
    return True


def known_fields(data: bytes, kind: Descriptor, where: str, name: str, reading: Reading) -> bytes:
    """Return the serialised message ``data`` without the fields that ``reading`` does not explain.

    Args:
        kind: the message type, one of BVLC's.
        where: the message in words, for notes.
        name: the layer's name.
    """
    parts, seen = [], set()
    fields = list(outline(data))
    numbers = {each.number for each in fields}
    for each in fields:
        content = data[each.start : each.end]
        field = kind.fields_by_number.get(each.number)
        number = each.number
        if field is None or each.wire_type not in wire_types(field):
            pass  # the schema has no such field
        elif is_forks(field):
            renamed = _number(field, reading, numbers)
            why = (
                "which is of another Caffe than this net shows" if renamed is None
                else f"which is no {field.name}" if not fits(field, each, content)
                else "a further one" if number in seen and is_message(field) and not is_repeated(field)
                else ""
            )  # fmt: skip
            if why:
                reading.note(f"omitted field {number} of {where}, {why}")
                continue
            assert renamed is not None
            seen.add(number)
            number = renamed
            if field.name in _CHANGING:
                reading.changed.add((name, _CHANGING[field.name]))
        elif field.message_type is not None:
            if field.message_type.name == "BlobProto":
                content = without_second_values(content, where, reading)
            else:
                content = known_fields(content, field.message_type, f"{field.name} of {where}", name, reading)
        parts.append(stored(number, each, content))
    return b"".join(parts)


def _number(field: FieldDescriptor, reading: Reading, numbers: Collection[int]) -> int | None:
    """Return the schema's number for the net's meaning of ``field``'s number; ``None`` if it is unknown.

    Args:
        numbers: the numbers of all fields of the message.
    """
    assert field.containing_type is not None
    kind, number = field.containing_type.name, field.number
    if reading.is_plain:
        return number
    if field.name in _NEVER_IN_FILES:
        return None
    if kind == "DropoutParameter":
        return _of_dropout(number, reading, numbers)
    if number >= FIRST_OWN_NUMBER or field.full_name in _OF_OLD_LAYERS:
        return number
    owners = _OWNERS.get(kind, {}).get(number, ())
    if reading.is_bpts and field.name not in _CHANGING:
        return number
    return number if any(map(reading.is_only, owners)) else None


def _of_dropout(number: int, reading: Reading, numbers: Collection[int]) -> int | None:
    """Return the schema's number of a field of dropout_param.

    R-FCN has ``scale_train`` 2, SegNet ``sample_weights_test`` 2, NVIDIA ``engine`` 2 and ``random_seed`` 3. bpt has
    ``scale_train`` 3; R-FCN's nets that bpt wrote have only that number.
    """
    if reading.is_bpts:
        return number
    fields = pb.DropoutParameter.DESCRIPTOR.fields_by_name
    if reading.is_only(Fork.RFCN) and (number == 2 or 2 not in numbers):
        return fields["scale_train"].number
    return fields["sample_weights_test"].number if number == 2 and reading.is_only(Fork.SEGNET) else None


def without_second_values(blob: bytes, where: str, reading: Reading) -> bytes:
    """Return ``blob`` without NVIDIA's ``raw_data`` if it also has its values in BVLC's form."""
    fields = list(outline(blob))
    numbers = {each.number for each in fields}
    if reading.is_plain or not (numbers & _BLOB_VALUES and numbers & _RAW):
        return blob
    reading.note(f"omitted fields 10 to 13 of a blob of {where}, which has its values in field 5 or 8")
    return b"".join(
        stored(each.number, each, blob[each.start : each.end]) for each in fields if each.number not in _RAW
    )


def is_sign_of_bpt(field: FieldDescriptor | None, each: WireField, content: bytes) -> bool:
    """Return whether a field has one of bpt's own numbers, with the type of content that bpt writes there."""
    if field is None or not FIRST_OWN_NUMBER <= field.number < _FIRST_OF_RFCN:
        return False
    return is_own(field) and fits(field, each, content)


def stored(number: int, each: WireField, content: bytes) -> bytes:
    """Return ``content``, stored as ``each`` is, as the field ``number``."""
    length = write_varint(len(content)) if each.wire_type == LENGTH else b""
    return write_varint(number << 3 | each.wire_type) + length + content
