"""NaN and infinity in the fields of a net and of a solver: refused, with layer and field."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bpt.base.errors import LayerError, PrototxtError
from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import non_finite_fields
from bpt.config.proto.parse import parse_text
from bpt.config.proto.sources import read_solver
from bpt.graph.build import build_graph
from tests.support.stand_ins import registry, specs_of

Way = tuple[str, ...]
# Nets and blobs have rules of their own; of the others a text with one field is not complete.
_LEFT_OUT = ("NetParameter", "BlobProto", "ClipParameter", "PSROIPoolingParameter")


def ways(message: Any, before: Way = ()) -> Iterator[Way]:
    """The way to each field of a floating-point number of a descriptor, but for those of nets and of blobs."""
    for field in message.fields:
        if field.message_type is not None:
            if field.message_type.name not in _LEFT_OUT:
                yield from ways(field.message_type, (*before, field.name))
        elif field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            yield (*before, field.name)


def text_of(way: Way, value: str) -> str:
    text = f"{way[-1]}: {value}"
    for name in reversed(way[:-1]):
        text = f"{name} {{ {text} }}"
    return text


@pytest.mark.parametrize("way", list(ways(pb.LayerParameter.DESCRIPTOR)), ids=".".join)
def test_every_number_of_a_layer(way: Way) -> None:
    layers = specs_of(f'layer {{ name: "in" type: "Source" top: "x" {text_of(way, "nan")} }}')
    with pytest.raises(LayerError) as caught:
        build_graph("net", layers, registry(), make_state(pb.TRAIN))
    assert caught.value.layer == "in" and caught.value.why == f"{way[-1]} must be a number, not nan"
    assert caught.value.origin is not None and caught.value.origin.column > 20


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("way", list(ways(pb.SolverParameter.DESCRIPTOR)), ids=".".join)
def test_every_number_of_a_solver(way: Way, value: str, tmp_path: Path) -> None:
    (tmp_path / "s.prototxt").write_text(text_of(way, value))
    with pytest.raises(PrototxtError, match=rf"{way[-1]} is {value}; it must be finite"):
        read_solver(tmp_path / "s.prototxt")


@pytest.mark.parametrize("text", ["clip_param { min: -inf max: inf }", "threshold_param { threshold: inf }"])
def test_no_limit_is_infinite(text: str) -> None:
    assert not list(non_finite_fields(parse_text(text, pb.LayerParameter).message))


def test_values_of_blobs_are_not_looked_at() -> None:
    layer = pb.LayerParameter(blobs=[pb.BlobProto(data=[math.nan])])
    assert not list(non_finite_fields(layer))


def test_the_place_in_a_list() -> None:
    layer = parse_text("param { lr_mult: 1 } param { decay_mult: inf }", pb.LayerParameter).message
    ((way, number),) = non_finite_fields(layer)
    assert (way, number) == (("param", 1, "decay_mult"), math.inf)
