"""Questions about fields: the same answers for all versions of protobuf, and where two messages differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bpt.base.origin import FieldPath

FIRST_OWN_NUMBER = 1000
# The last number that BVLC's Caffe has, in the messages to which forks add fields of lower numbers than bpt's own.
_LAST_OF_CAFFE = {
    "NetParameter": 8,
    "LayerParameter": 148,
    "SolverParameter": 42,
    "SolverState": 4,
    "BlobProto": 9,
    "FillerParameter": 8,
    "TransformationParameter": 7,
    "DataParameter": 10,
    "ImageDataParameter": 12,
    "BatchNormParameter": 3,
    "ConcatParameter": 2,
    "ConvolutionParameter": 18,
    "DropoutParameter": 1,
    "ELUParameter": 1,
    "EltwiseParameter": 3,
    "InnerProductParameter": 6,
    "LossParameter": 3,
    "PoolingParameter": 13,
}
_LAYERS_OF_NET = 100  # in NetParameter, and Caffe's
# Their few numbers above 1000 are Caffe's own.
_OLD_LAYERS = frozenset({"V0LayerParameter", "V1LayerParameter"})


def field_by_name(message: Message | type[Message], name: str) -> FieldDescriptor | None:
    """Return the field of ``message`` called ``name``; None if there is none."""
    return cast("FieldDescriptor | None", message.DESCRIPTOR.fields_by_name.get(name))


def fields_of(message: Message) -> list[FieldDescriptor]:
    """Return all fields that ``message`` can have, in the order of the schema."""
    return cast("list[FieldDescriptor]", list(message.DESCRIPTOR.fields))


def field_by_number(message: Message | type[Message], number: int) -> FieldDescriptor | None:
    """Return the field of ``message`` with the number ``number``; None if there is none."""
    return cast("FieldDescriptor | None", message.DESCRIPTOR.fields_by_number.get(number))


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether the field holds a list."""
    try:  # protobuf 7 no longer has ``label``, protobuf 4 does not yet have ``is_repeated``
        return bool(field.is_repeated)
    except AttributeError:
        label = field.label  # type: ignore[attr-defined]
        return bool(label == FieldDescriptor.LABEL_REPEATED)


def is_message(field: FieldDescriptor) -> bool:
    """Return whether the field holds a message (or a list of them), not a plain value."""
    return bool(field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE)


def is_own(field: FieldDescriptor) -> bool:
    """Return whether bpt, or another fork, added the field to one of Caffe's messages, so that Caffe lacks it."""
    container = field.containing_type
    if container is None or container.name in _OLD_LAYERS:
        return False
    if container.name == "NetParameter" and field.number == _LAYERS_OF_NET:
        return False
    return field.number > _LAST_OF_CAFFE.get(container.name, FIRST_OWN_NUMBER - 1)


VALUES_OF_FORKS = frozenset({"MKL2017", "MKLDNN", "PRE_FIXED"})
"""Values that forks added to enums of Caffe's."""


def is_own_value(field: FieldDescriptor, value: Any) -> bool:
    """Return whether ``value`` is one that a fork added to an enum of Caffe's, as in ``engine: MKL2017``."""
    if field.enum_type is None or is_repeated(field):
        return False
    known = field.enum_type.values_by_number.get(value)
    return known is not None and known.name in VALUES_OF_FORKS


M = TypeVar("M", bound=Message)


def without(message: M, *paths: str) -> M:
    """Return a copy of ``message`` without the fields at ``paths``, ``name`` or ``message.name``.

    They need not be there.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    for path in paths:
        *above, name = path.split(".")
        holder: Message | None = copy
        for step in above:
            holder = getattr(holder, step) if holder is not None and holder.HasField(step) else None
        if holder is not None:
            holder.ClearField(name)
    return copy


_FREE_OF_LIMITS = frozenset(
    (("ClipParameter", "min"), ("ClipParameter", "max"), ("ThresholdParameter", "threshold"),
     ("MultiBoxLossParameter", "neg_pos_ratio"))
)  # fmt: skip
"""The message and field of numbers that may be infinite, which means no limit."""


def non_finite_fields(message: Message) -> Iterator[tuple[FieldPath, float]]:
    """Yield the path and the value of each field that is NaN, or infinite where that means nothing.

    Stored values of blobs are not checked.
    """
    for field, value in message.ListFields():
        if is_message(field):
            if field.message_type is not None and field.message_type.name != "BlobProto":
                for index, each in enumerate(value if is_repeated(field) else (value,)):
                    here: FieldPath = (field.name, index) if is_repeated(field) else (field.name,)
                    yield from ((here + way, number) for way, number in non_finite_fields(each))
        elif field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            for index, number in enumerate(value if is_repeated(field) else (value,)):
                no_limit = math.isinf(number) and (message.DESCRIPTOR.name, field.name) in _FREE_OF_LIMITS
                if not math.isfinite(number) and not no_limit:
                    yield (field.name, index) if is_repeated(field) else (field.name,), number


def non_finite_message(way: FieldPath, number: float) -> str:
    """Return the message about a field that :func:`non_finite_fields` found."""
    name = next(step for step in reversed(way) if isinstance(step, str))
    return f"{name} must be a number, not {number:g}"


_LONG = 40  # the most characters of a value that is shown


def different_fields(was: Message, now: Message) -> Iterator[str]:
    """Return each field whose value differs: ``max_iter (200, now 100)``. An unset field has its default.

    Args:
        was, now: two messages of one type.
    """
    for field in fields_of(was):
        mine, other = getattr(was, field.name), getattr(now, field.name)
        if is_message(field) and not is_repeated(field):
            yield from (f"{field.name} {{ {inner} }}" for inner in different_fields(mine, other))
        elif mine != other:
            before, after = _shown(field, mine), _shown(field, other)
            short = max(len(before), len(after)) <= _LONG
            yield f"{field.name} ({before}, now {after})" if short else field.name


def _shown(field: FieldDescriptor, value: Any) -> str:
    if is_repeated(field):
        return "[" + ", ".join(_one(field, each) for each in value) + "]"
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.7g}"
    return f'"{value}"' if isinstance(value, str) else str(value)
