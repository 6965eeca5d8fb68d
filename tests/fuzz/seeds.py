"""What cases are made from: the project's own networks and recordings, and the words of the schema."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path

from google.protobuf.descriptor import Descriptor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import LAYERS
from tests.support.paths import GOLDEN, ROOT

_LONGEST = 6000  # bytes of a text: long ones are slow, and say the same again and again


@cache
def words() -> tuple[str, ...]:
    """Names of fields and values of the schema and of layer types."""
    found = set(LAYERS)
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        _collect(message, found)
    found.update(value for enum in pb.DESCRIPTOR.enum_types_by_name.values() for value in enum.values_by_name)
    found.update("{}<>[]:;,#\"'-")
    return tuple(sorted(found))


def _collect(message: Descriptor, found: set[str]) -> None:
    found.update(message.fields_by_name)
    for enum in message.enum_types:
        found.update(enum.values_by_name)
    for inner in message.nested_types:
        _collect(inner, found)


@cache
def net_texts() -> tuple[bytes, ...]:
    """Networks: of ``prototxt/``, recorded ones, also in old formats, and some that Caffe refused."""
    whole = [text for text in _texts() if b"layer" in text and b"lr_policy" not in text]
    return (*whole, *(text.encode() for text in layer_texts()))


@cache
def solver_texts() -> tuple[bytes, ...]:
    """Solvers, some with nets in them."""
    inner = b"train_net_param { %s } test_net_param { %s } test_iter: 2 test_interval: 3 "
    small = b'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }'
    net = re.compile(rb'net: "[^"]*"')
    solvers = [net.sub(b'net: "net.prototxt"', text) for text in _texts() if b"base_lr" in text]
    return (*solvers, *(text + inner % (small, small) for text in solvers[:20]))


def _texts() -> list[bytes]:
    folders = (ROOT / "prototxt", GOLDEN / "snapshots", GOLDEN / "cli" / "inputs")
    paths = sorted(path for folder in folders for path in folder.rglob("*.prototxt"))
    texts = (path.read_bytes() for path in paths)
    return sorted({text for text in texts if len(text) <= _LONGEST})


@cache
def layer_texts() -> tuple[str, ...]:
    """The recorded nets of one layer each, all types."""
    cases = (json.loads(path.read_text()) for path in sorted((GOLDEN / "layers").glob("*.json")))
    return tuple(case["prototxt"] for kind in cases for case in kind)


def files(pattern: str) -> tuple[bytes, ...]:
    """The contents of the recorded files that match."""
    found = tuple(path.read_bytes() for path in sorted(GOLDEN.glob(pattern)))
    assert found, pattern
    return found


def copy_data(folder: Path) -> Path:
    """A copy of the recorded data sets in ``folder``, which no case can spoil for others."""
    target = folder / "data"
    shutil.copytree(GOLDEN / "data", target)
    target.joinpath("h5list.txt").write_text(f"{target / 'h0.h5'}\n{target / 'h1.h5'}\n")
    images = sorted(path.name for path in target.joinpath("images").iterdir())
    target.joinpath("list.txt").write_text("".join(f"{name} {index}\n" for index, name in enumerate(images)))
    return target
