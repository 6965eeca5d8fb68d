"""No binary net of BVLC's schema is changed by what another Caffe wrote beside its fields.

BVLC's schema is that of ``tests/config/proto/caffe_schema.tsv``, so that nothing here asks bpt what BVLC's Caffe has.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import bpt.apps.convert.layer_arrays
import bpt.config.proto.rewrite
from bpt.apps.convert.conversion import convert
from bpt.base.errors import RunError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.dialects import NetOfDialect, read_net
from bpt.config.proto.rewrite import rewrite_net_binary
from tests.support.dialect_messages import Value, layer, message
from tests.support.paths import TESTS

SCHEMA = TESTS / "config" / "proto" / "caffe_schema.tsv"
TYPES = (
    "Pooling", "Convolution", "BatchNorm", "SoftmaxWithLoss", "Data", "InnerProduct", "Dropout", "ReLU", "Input",
    "Crop", "Tile", "Embed", "LSTM", "Eltwise", "Concat", "ELU", "Mine",
)  # fmt: skip
REQUIRED = (("ClipParameter", "min"), ("ClipParameter", "max"))
CONTENTS = (b"", b"CAFFE", b"MKL2017", b"\x08\x02", b"\x15\0\0\x80?", b"\x08\x01\x10\x02", b"\xff\xff", b"abc")


@cache
def bvlcs_net() -> type[Message]:
    known: dict[str, dict[str, int]] = defaultdict(dict)
    values = set()
    with SCHEMA.open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["kind"] == "field":
                known[row["scope"]][row["name"]] = int(row["number"])
            else:
                values.add((row["scope"], row["name"]))
    schema = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(schema)

    def keep_known(kind: descriptor_pb2.DescriptorProto) -> None:
        fields = [each for each in kind.field if known[kind.name].get(each.name) == each.number]
        del kind.field[:]
        kind.field.extend(fields)
        for enum in kind.enum_type:
            kept = [each for each in enum.value if (f"{kind.name}.{enum.name}", each.name) in values]
            if kept:
                del enum.value[:]
                enum.value.extend(kept)

    for kind in schema.message_type:
        keep_known(kind)
    pool = descriptor_pool.DescriptorPool()
    schema.name = "bvlcs_alone.proto"
    pool.Add(schema)
    return GetMessageClass(pool.FindMessageTypeByName("bpt.NetParameter"))


def unknown(rng: random.Random, kind: Any) -> bytes:
    number = rng.choice(
        [rng.randrange(1, 45), rng.randrange(100, 260), rng.choice((600, 1000, 1003, 6660, 10001, 8266711))]
    )
    value: Value = rng.choice((0, 1, 2, 3, 2**40, 0.5, 128.0, *CONTENTS))
    return b"" if number in kind.fields_by_number else message((number, value))


def fill(rng: random.Random, holder: Any, depth: int = 0) -> None:
    """Set some of all fields of ``holder``, and fields that are not BVLC's."""
    for field in holder.DESCRIPTOR.fields:
        is_required = (holder.DESCRIPTOR.name, field.name) in REQUIRED
        if field.name in ("blobs", "name", "type"):
            continue
        if rng.random() > (0.08 if depth == 0 else 0.35) and not is_required:
            continue
        value: Any
        if field.message_type is not None:
            if depth < 3:
                inside = getattr(holder, field.name)
                inside = inside.add() if hasattr(inside, "add") else inside
                inside.SetInParent()
                fill(rng, inside, depth + 1)
            continue
        if field.enum_type is not None:
            value = rng.choice(field.enum_type.values).number
        elif field.cpp_type == field.CPPTYPE_STRING:
            value = b"x" if field.type == field.TYPE_BYTES else "word"
        else:
            value = rng.randrange(2) if field.cpp_type == field.CPPTYPE_BOOL else rng.randrange(5)
        current = getattr(holder, field.name)
        if hasattr(current, "append"):
            current.append(value)
        else:
            setattr(holder, field.name, bool(value) if field.cpp_type == field.CPPTYPE_BOOL else value)
    if rng.random() < 0.3:
        holder.MergeFromString(unknown(rng, holder.DESCRIPTOR))


def random_net(rng: random.Random) -> bytes:
    net: Any = bvlcs_net()()
    net.name = "net"
    for index in range(rng.randrange(1, 4)):
        made = net.layer.add(name=f"l{index // 2}", type=rng.choice(TYPES), bottom=["b"], top=[f"t{index}"])
        fill(rng, made)
        if rng.random() < 0.5:
            made.blobs.add(data=[0.5, -1]).shape.dim.append(2)
    if rng.random() < 0.2:
        net.MergeFromString(unknown(rng, net.DESCRIPTOR))
    return bytes(net.SerializePartialToString())


def plain(content: bytes) -> Any:
    net: Any = bvlcs_net().FromString(content)
    net.DiscardUnknownFields()
    return net


def settled(net: Any) -> list[bytes]:
    """Return the layers as today's Caffe has them: BatchNorm's three ``param`` are frozen when a net is opened."""
    for each in net.layer:
        if each.type == "BatchNorm" and len(each.param) == 3:
            each.ClearField("param")
    return [bytes(each.SerializePartialToString(deterministic=True)) for each in net.layer]


@pytest.mark.parametrize("way", [convert, rewrite_net_binary])
def test_no_field_of_bvlcs_is_changed(way: Any, tmp_path: Path) -> None:
    """Whatever stands beside them, in layers, settings and the net: they are as they were, or the file is refused."""
    source, target, refused = str(tmp_path / "net.caffemodel"), str(tmp_path / "new.caffemodel"), 0
    for seed in range(200):
        content = random_net(random.Random(seed))
        Path(source).write_bytes(content)
        try:
            way(source, target)
        except UserError:
            refused += 1
            continue
        assert settled(plain(Path(target).read_bytes())) == settled(plain(content)), seed
    assert refused < 60


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ("batch_norm_param", "eps", 0.5), ("lrn_param", "alpha", 7), ("pooling_param", "stride", 2),
        ("reshape_param", "axis", 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", [convert, rewrite_net_binary])
def test_a_wrong_reading_is_found_and_nothing_is_written(
    way: Any, settings: str, field: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where other fields, here 203 and 10001, are no messages that the schema has there."""

    def misread(path: Any, *others: Any) -> NetOfDialect:
        net = read_net(path, *others)
        setattr(getattr(net.net.layer[1], settings), field, value)
        return net

    for module in (bpt.apps.convert.layer_arrays, bpt.config.proto.rewrite):
        monkeypatch.setattr(module, "read_net", misread)
    number = pb.LayerParameter.DESCRIPTOR.fields_by_name[settings].number
    same_name = [layer("Mine", (203, b"\xff"), (10001, b"\x08\x02")), layer("Mine", (number, b""))]
    (tmp_path / "net.caffemodel").write_bytes(message((1, "net"), *same_name))
    (tmp_path / "new.caffemodel").write_bytes(b"as it was")
    with pytest.raises(RunError) as caught:
        way(str(tmp_path / "net.caffemodel"), str(tmp_path / "new.caffemodel"))
    assert settings in str(caught.value)
    assert (tmp_path / "new.caffemodel").read_bytes() == b"as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.caffemodel", "new.caffemodel"]
