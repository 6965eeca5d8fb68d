"""Settings of BVLC's layer types in which Caffe's forks have their own numbers, read as those of bpt's schema.

Each is decided by its own message where that is possible, else by the signs of a fork in the net (``dialects``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from google.protobuf.message import DecodeError

from bpt.base.errors import BptError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import FIXED32, LENGTH, VARINT, WireField, outline, read_varint, write_varint
from bpt.config.proto.dialect_fields import stored
from bpt.config.proto.dialect_reading import Dialect, Fork, Reading, ambiguous


def numbers_of(message: bytes) -> dict[int, int]:
    """Return the numbers that a message stores as varints, by field; of several the last."""
    return {each.number: read_varint(message, each.start)[0] for each in outline(message) if each.wire_type == VARINT}


# Settings of BVLC's types in which forks have numbers of their own

BATCH_NORM, POOLING, LOSS, _DATA = (
    pb.LayerParameter.DESCRIPTOR.fields_by_name[name].number
    for name in ("batch_norm_param", "pooling_param", "loss_param", "data_param")
)
# By number and by how it is stored, which differs wherever two forks have the same number.
IN_BATCH_NORM: Mapping[tuple[int, int], tuple[Fork, int]] = {
    (5, LENGTH): (Fork.NVIDIA, 1001), (6, LENGTH): (Fork.NVIDIA, 1002), (7, VARINT): (Fork.NVIDIA, 1003),
    (15, VARINT): (Fork.NVIDIA, 4), (5, VARINT): (Fork.INTEL, 1004), (6, VARINT): (Fork.INTEL, 1005),
    (7, LENGTH): (Fork.INTEL, 1006), (8, LENGTH): (Fork.INTEL, 1002),
}  # fmt: skip


def _batch_norm(param: bytes, name: str, reading: Reading) -> bytes:
    parts = []
    for each in outline(param):
        content = param[each.start : each.end]
        _, number = IN_BATCH_NORM.get((each.number, each.wire_type), (None, each.number))
        if number != each.number and each.wire_type == LENGTH and not _is_filler(content):
            reading.note(f'omitted field {each.number} of batch_norm_param of layer "{name}", which is no filler')
            continue
        parts.append(stored(number, each, content))
    return b"".join(parts)


def _is_filler(content: bytes) -> bool:
    try:
        pb.FillerParameter.FromString(content)
    except DecodeError:
        return False
    return True


def _data(param: bytes, name: str, reading: Reading) -> bytes:
    """Read ``threads`` 11 and ``shuffle`` 14 of NVIDIA's, or ``shuffle`` 11 of Intel's."""
    numbers = {11: 1001, 14: 1000} if reading.is_nvidias else {11: 1000} if reading.is_intels else {}
    if reading.is_nvidias and reading.is_intels and 11 in numbers_of(param):
        raise ambiguous(f'field 11 of data_param of layer "{name}"', "NVIDIA's threads", "Intel's shuffle")
    return renumbered(param, numbers)


def _loss(param: bytes, name: str, reading: Reading) -> bytes:
    """Read ``normalization``: Intel's and R-FCN's 3 is PRE_FIXED and their 4 NONE; BVLC's NONE is 3.

    Their field 4 is the normalizer of PRE_FIXED; NVIDIA's is ``label_smoothing``, a share. No layer reads Intel's 5.
    """
    mode, value = numbers_of(param).get(3), _float_of(param, 4)
    if mode not in (3, 4) or (mode == 3 and value is None and not reading.is_intels):
        return param
    if mode == 3 and not (value is not None and value > 1):  # a larger value is no share
        prefixed = reading.is_intels or reading.is_only(Fork.RFCN)
        if prefixed == reading.is_nvidias or value is None:
            one = "NONE (BVLC)" if value is None else f"NONE with label_smoothing {value:g} (NVIDIA)"
            raise ambiguous(f'normalization 3 of layer "{name}"', one, "PRE_FIXED (Intel, R-FCN)")
        if reading.is_nvidias:
            return param
    reading.changed.add((name, "loss_param"))
    reading.note(f"loss_param of layer \"{name}\" is in the numbers of Intel's and R-FCN's Caffe{reading.by_choice}")
    chosen = pb.LossParameter.PRE_FIXED if mode == 3 else pb.LossParameter.NONE
    normalizer = pb.LossParameter.DESCRIPTOR.fields_by_name["pre_fixed_normalizer"].number
    parts = []
    for each in outline(param):
        content = write_varint(chosen) if (each.number, each.wire_type) == (3, VARINT) else param[each.start : each.end]
        if each.number != 5:
            parts.append(stored(normalizer if each.number == 4 else each.number, each, content))
    return b"".join(parts)


def _float_of(message: bytes, number: int) -> float | None:
    """Return the last value of a field that is stored as a float."""
    values = [each for each in outline(message) if (each.number, each.wire_type) == (number, FIXED32)]
    return float(struct.unpack_from("<f", message, values[-1].start)[0]) if values else None


# Pooling: Intel's Caffe 1.0.5 to 1.1.1a has other numbers than BVLC's, and all of ``pad``, ``kernel_size`` and
# ``stride`` may be there for each axis. Releases before and after it have BVLC's.
_SWAPPED = {2: 4, 3: 2, 4: 3, 5: 9, 6: 10, 7: 5, 8: 6, 9: 7, 10: 8, 13: 1001}
_BY_AXIS = {4: (9, 10), 2: (5, 6), 3: (7, 8)}  # pad, kernel_size and stride, of height and width


def _pooling(param: bytes, name: str, reading: Reading) -> bytes:
    what = f'pooling_param of layer "{name}"'
    if reading.chosen in (None, Dialect.INTEL_1_0_5):
        swapped = renumbered(param, _SWAPPED)
        is_bvlcs, is_swapped = not repeats_axes(param) and _can_pool(param), _can_pool(swapped)
        if reading.chosen or (is_swapped and reading.is_intels and not is_bvlcs):
            reading.changed.add((name, "pooling_param"))
            one, other = map(_describe, (param, swapped))
            meaning = f": {other} (by BVLC's numbers {one})" if reading.chosen and swapped != param else ""
            reading.note(f"{what} is in the numbers of {Dialect.INTEL_1_0_5.value}{reading.by_choice}{meaning}")
            return _by_axis(swapped, what)
        # A pooling that cannot be BVLC's is one sign, which is not enough. Without any, it is BVLC's, like most files.
        if is_swapped and swapped != param and (reading.is_intels or not is_bvlcs):
            one, other = (f"{_describe(each)} in the numbers of" for each in (param, swapped))
            raise ambiguous(what, f"{one} {Dialect.BVLC.value}", f"{other} {Dialect.INTEL_1_0_5.value}")
    if reading.is_intels and 13 in numbers_of(param):
        raise ambiguous(f"field 13 of {what}", "round_mode (BVLC)", "avg_include_pad (Intel)")
    return param


def repeats_axes(param: bytes) -> bool:
    """Return whether a pooling has a number for each axis, as only Intel's Caffe 1.0.5 to 1.1.1a writes it."""
    seen = [each.number for each in outline(param) if each.wire_type == VARINT and each.number in (2, 3, 4)]
    return len(set(seen)) < len(seen)


def _can_pool(param: bytes) -> bool:
    """Return whether Caffe accepts a pooling: it has a kernel, and its padding is smaller (``PoolingLayer``)."""
    found = numbers_of(param)
    if found.get(12):  # global_pooling
        return not {2, 5, 6} & set(found)
    kernel_h, kernel_w = found.get(5, found.get(2, 0)), found.get(6, found.get(2, 0))
    if (2 in found) == (5 in found or 6 in found) or found.get(3, 1) < 1:
        return False
    return found.get(9, found.get(4, 0)) < kernel_h and found.get(10, found.get(4, 0)) < kernel_w


def _by_axis(param: bytes, what: str) -> bytes:
    """Write the numbers of each axis as those of height and width."""
    values: dict[int, list[WireField]] = {}
    for each in outline(param):
        if each.number in _BY_AXIS:
            values.setdefault(each.number, []).append(each)
    parts = []
    for each in outline(param):
        content, group = param[each.start : each.end], values.get(each.number, [])
        if len(group) > len(_BY_AXIS.get(each.number, "1")):
            raise BptError(f"{what} has numbers for {len(group)} axes; bpt pools over height and width")
        number = each.number if len(group) < 2 else _BY_AXIS[each.number][group.index(each)]
        parts.append(stored(number, each, content))
    return b"".join(parts)


def _describe(param: bytes) -> str:
    words = {2: "kernel", 5: "kernel_h", 6: "kernel_w", 3: "stride", 7: "stride_h", 8: "stride_w", 4: "pad"}
    found = numbers_of(param)
    return " ".join(f"{word} {found[number]}" for number, word in words.items() if number in found) or "nothing"


INSIDE: Mapping[int, Callable[[bytes, str, Reading], bytes]] = {
    BATCH_NORM: _batch_norm, POOLING: _pooling, LOSS: _loss, _DATA: _data,
}  # fmt: skip


def renumbered(message: bytes, numbers: Mapping[int, int]) -> bytes:
    """Return ``message`` with the fields ``numbers`` under other numbers."""
    return b"".join(
        stored(numbers.get(each.number, each.number), each, message[each.start : each.end]) for each in outline(message)
    )
