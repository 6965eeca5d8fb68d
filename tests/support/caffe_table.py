"""The tables of docs/caffe.md, Caffe's schema, and where the tests set its fields."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.message import Message

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import is_message, is_repeated
from tests.support.paths import ROOT, TESTS

THIS = ("test_caffe_table.py", "caffe_table.py")

CAFFE_TYPES = frozenset(
    """
    AbsVal Accuracy ArgMax BNLL BatchNorm BatchReindex Bias Clip Concat ContrastiveLoss Convolution Crop Data
    Deconvolution Dropout DummyData ELU Eltwise Embed EuclideanLoss Exp Filter Flatten HDF5Data HDF5Output HingeLoss
    Im2col ImageData InfogainLoss InnerProduct Input LRN LSTM LSTMUnit Log MVN MemoryData MultinomialLogisticLoss
    PReLU Parameter Pooling Power Python RNN ReLU Reduction Reshape SPP Scale Sigmoid SigmoidCrossEntropyLoss Silence
    Slice Softmax SoftmaxWithLoss Split Swish TanH Threshold Tile WindowData
    """.split()  # noqa: SIM905  (a list of strings would take a screen)
)
"""Every layer type of BVLC Caffe 1.0."""

# What a text need not name, as it is all of the text; and what only files hold, and tests make in Python.
EVERYWHERE = frozenset({"NetParameter", "SolverParameter", "LayerParameter"})
IN_FILES = frozenset({"BlobProto", "Datum", "SolverState"})

Field = tuple[str, str]
"""A message of the schema, and a field of it."""


class Row(NamedTuple):
    """A line of a table."""

    names: tuple[str, ...]  # what is listed
    state: str
    remark: str
    message: str = ""


@cache
def sections() -> dict[str, list[list[str]]]:
    """The cells of each table of the guide, without its head, by the heading that it stands under."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (ROOT / "docs" / "caffe.md").read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|"):
            found.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return {heading: rows[2:] for heading, rows in found.items()}


def rows(heading: str) -> list[Row]:
    """The table under ``heading``: names (in backticks or without), state, remark."""
    return [
        Row(tuple(re.findall(r"`([^`]+)`", names) or names.split(", ")), state, remark)
        for names, state, remark in sections()[heading]
    ]


def field_rows() -> list[Row]:
    """All tables of fields."""
    headings = (
        "Solvers", "Networks", "Settings of layers", "Binary files", "The formats of 2013 and 2014",
    )  # fmt: skip
    return [
        Row(tuple(fields.strip("`").split()), state, remark, message)
        for heading in headings
        for message, fields, state, remark in sections()[heading]
    ]


def fork_rows() -> list[Row]:
    """The table of the forks' fields, a row for each message; "all" is what no other row names."""
    cells = sections()["Fields of Caffe's forks"]
    parted = [
        (message, fields.strip("`").split(), state, remark)
        for messages, fields, state, remark in cells
        for message in messages.split(", ")
    ]
    named = {(message, name) for message, fields, _, _ in parted for name in fields}
    rest: dict[str, list[str]] = {}
    for message, name in sorted(forks_schema()):
        if (message, name) not in named:
            rest.setdefault(message, []).append(name)
    return [
        Row(tuple(rest.pop(message, [])) if fields == ["all"] else tuple(fields), state, remark, message)
        for message, fields, state, remark in parted
    ]


def fields_that(state: str) -> list[Field]:
    """The fields that are listed with this state."""
    return [(row.message, name) for row in field_rows() if row.state == state for name in row.names]


@cache
def schema() -> frozenset[Field]:
    """All fields of Caffe's schema."""
    with (TESTS / "config" / "proto" / "caffe_schema.tsv").open() as table:
        return frozenset(
            (row["scope"], row["name"]) for row in csv.DictReader(table, delimiter="\t") if row["kind"] == "field"
        )


@cache
def forks_schema() -> frozenset[Field]:
    """All fields of Caffe's forks."""
    with (TESTS / "config" / "proto" / "forks_schema.tsv").open() as table:
        return frozenset((row["scope"], row["name"]) for row in csv.DictReader(table, delimiter="\t"))


@cache
def recorded() -> frozenset[Field]:
    """The fields set in the networks that come along, and in the texts that the real Caffe was recorded with."""
    found: set[Field] = set()
    for path in (*(ROOT / "prototxt").rglob("*.prototxt"), *TESTS.rglob("*.prototxt")):
        found.update(_fields_of_text(path.read_text()))
    for path in (TESTS / "golden").rglob("*.json"):
        for text in _strings(json.loads(path.read_text())):
            if ":" in text or "{" in text:
                found.update(_fields_of_text(text))
    return frozenset(found)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _fields_of_text(text: str) -> Iterator[Field]:
    """The fields that are set in a network or a solver; none if ``text`` is neither."""
    for kind in (pb.NetParameter, pb.SolverParameter):
        try:
            yield from _fields_of(text_format.Parse(text, kind()))
            return
        except text_format.ParseError:
            continue


def _fields_of(message: Message) -> Iterator[Field]:
    for field, value in message.ListFields():
        yield message.DESCRIPTOR.name, field.name
        if is_message(field):
            for each in value if is_repeated(field) else [value]:
                yield from _fields_of(each)


class _Test(NamedTuple):
    """The words of a file with tests: all, those that are set (``name: 1``, ``name {``, ``name=1``), attributes."""

    words: frozenset[str]
    settings: frozenset[str]
    attributes: frozenset[str]


@cache
def _tests() -> list[_Test]:
    texts = [path.read_text() for path in sorted(TESTS.rglob("*.py")) if path.name not in THIS]
    patterns = (r"\w+", r"\b(\w+)(?::|\s*\{|=(?!=))", r"\.(\w+)")
    return [_Test(*(frozenset(re.findall(pattern, text)) for pattern in patterns)) for text in texts]


def is_set_in_tests(field: Field) -> bool:
    """Whether a test that names the message, or a field that holds one, sets the field.

    Of messages that only files hold, tests read or set attributes.
    """
    message, name = field
    holders = {
        field.name
        for kind in pb.DESCRIPTOR.message_types_by_name.values()
        for field in kind.fields
        if field.message_type is not None and field.message_type.name == message
    }
    about = {message, *holders} - {"layer"}
    return any(
        name in test.settings or (message in IN_FILES and name in test.attributes)
        for test in _tests()
        if message in EVERYWHERE or about & test.words
    )
