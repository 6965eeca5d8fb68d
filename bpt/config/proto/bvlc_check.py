"""The comparison of a written net with the bytes from which it was read, both by BVLC's schema alone.

The check knows nothing of forks. So it compares the meaning given to a fork's numbers with the plain reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import cast

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from bpt.base.errors import BptError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import LENGTH, outline
from bpt.config.proto.dialect_fields import is_forks, stored
from bpt.config.proto.fields import VALUES_OF_FORKS
from bpt.config.proto.upgrade import upgrade_net

_LAYERS = pb.NetParameter.DESCRIPTOR.fields_by_name["layer"].number


@cache
def _net_class() -> type[Message]:
    """Return the NetParameter of bpt's schema without the fields and values that BVLC's Caffe does not have."""
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        _remove_forks(message, pb.DESCRIPTOR.message_types_by_name[message.name])
    file.name = "bvlc.proto"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(pb.NetParameter.DESCRIPTOR.full_name))


def _remove_forks(message: descriptor_pb2.DescriptorProto, kind: Descriptor) -> None:
    kept = [field for field in message.field if not is_forks(kind.fields_by_name[field.name])]
    del message.field[:]
    message.field.extend(kept)
    for enum in message.enum_type:
        values = [value for value in enum.value if value.name not in VALUES_OF_FORKS]
        del enum.value[:]
        enum.value.extend(values)


def plain_net(content: bytes) -> pb.NetParameter:
    """Return the net that BVLC's Caffe reads in ``content``, in today's format.

    Raises:
        BptError: it cannot be upgraded.
    """
    net = pb.NetParameter.FromString(_plain(content))
    upgrade_net(net, {}, None)
    return net


def _plain(content: bytes) -> bytes:
    kind = _net_class()
    try:
        net = kind.FromString(content)
    except (DecodeError, ValueError):
        net = kind.FromString(_parsable(content, cast(Descriptor, kind.DESCRIPTOR)))
    net.DiscardUnknownFields()
    return net.SerializePartialToString(deterministic=True)


def _parsable(message: bytes, kind: Descriptor) -> bytes:
    """Return ``message`` without the fields whose content does not have the schema's type."""
    parts = []
    for each in outline(message):
        field, content = kind.fields_by_number.get(each.number), message[each.start : each.end]
        if each.wire_type == LENGTH and field is not None and field.message_type is not None:
            content = _parsable(content, field.message_type) if each.number == _LAYERS else content
            try:
                GetMessageClass(field.message_type).FromString(content)
            except (DecodeError, ValueError):
                continue
        parts.append(stored(each.number, each, content))
    return b"".join(parts)


def aligned(
    source: pb.NetParameter, written: pb.NetParameter, changed: Collection[tuple[str, str]]
) -> Iterator[tuple[int, int]]:
    """Yield the places of each layer in ``source`` and in ``written``, where ReLUs may follow the layers ``changed``.

    Raises:
        BptError: they do not have the same layers.
    """
    there, before = iter(enumerate(source.layer)), ""
    for place, layer in enumerate(written.layer):
        if layer.type == "ReLU" and (before, "relu") in changed and layer.name.startswith(f"{before}_relu"):
            continue
        index, wanted = next(there, (0, None))
        if wanted is None:
            raise BptError(f'layer "{layer.name}" is not among the {len(source.layer)} of the source')
        yield index, place
        before = layer.name
    if (rest := next(there, None)) is not None:
        raise BptError(f'layer "{rest[1].name}" is not there')


def check_net(
    source: bytes, written: bytes, changed: Collection[tuple[str, str]], without: Collection[str] = ()
) -> pb.NetParameter:
    """Compare all that BVLC's Caffe knows of ``written``, layer by layer, with the ``source``, which is returned.

    Args:
        source, written: serialised nets, the latter in today's format.
        changed: names of layers, each with a field that is not compared, since it was reported.
        without: fields of layers that are not compared.

    Raises:
        BptError: they differ, or the source cannot be upgraded.
    """
    wanted = plain_net(source)
    expected = pb.NetParameter.FromString(_plain(wanted.SerializePartialToString()))
    found = pb.NetParameter.FromString(_plain(written))
    for index, place in aligned(expected, found, changed):
        name = expected.layer[index].name
        _compare(
            f'layer "{name}"', expected.layer[index], found.layer[place],
            {*without, *(field for layer, field in changed if layer == name)},
        )  # fmt: skip
    _compare("the net", expected, found, {"layer"})
    return wanted


def _compare(what: str, wanted: Message, found: Message, without: Collection[str]) -> None:
    one, other = (_by_field(message) for message in (wanted, found))
    for number in sorted(one.keys() | other.keys()):
        field = wanted.DESCRIPTOR.fields_by_number[number]
        if field.name not in without and one.get(number) != other.get(number):
            raise BptError(f"{field.name} of {what}, read back, has changed")


def _by_field(message: Message) -> dict[int, list[bytes]]:
    data = message.SerializePartialToString(deterministic=True)
    found: dict[int, list[bytes]] = {}
    for each in outline(data):
        found.setdefault(each.number, []).append(data[each.start : each.end])
    return found
