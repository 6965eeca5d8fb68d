"""What the time of an iteration is made of: sums by hand."""

from __future__ import annotations

import json
from typing import cast

import pytest

from bpt.graph.layer_graph import LayerNode
from bpt.perf.timing.roofline import Direction, LayerWork, Point
from scripts.benches.harness.iteration_parts import HEAD, IterationParts, part_lines


class Node:
    def __init__(self, type: str) -> None:
        self.type = type


def point(type: str, seconds: float, least: float) -> Point:
    return Point(cast("LayerNode", Node(type)), Direction.FORWARD, LayerWork(1, 1), seconds, least, True)


LAYERS = [
    point("Convolution", 0.004, 0.001),
    point("Convolution", 0.003, 0.001),
    point("InnerProduct", 0.002, 0.0015),
    point("Split", 0.0005, 0.0),
    point("SoftmaxWithLoss", 0.0002, 0.0001),
]


def test_layers_are_summed_by_their_kind() -> None:
    parts = IterationParts.of(LAYERS, passes=0.009, update=0.001)
    assert parts.at_roof == pytest.approx(0.0036)
    assert parts.above["convolution"] == pytest.approx(0.005)
    assert parts.above["inner product"] == pytest.approx(0.0005)
    assert parts.above["other layers"] == pytest.approx(0.0006)
    assert parts.above["pooling"] == 0


def test_the_parts_add_up_to_the_iteration() -> None:
    """Layers apart take 9.7 ms, the passes 9: fusion saves 0.7. With the update 10; the loop's 10.5 leave 0.5."""
    row = IterationParts.of(LAYERS, passes=0.009, update=0.001).cells("net", 0.0105)
    cells = dict(zip(HEAD, row, strict=True))
    assert (cells["iteration ms"], cells["of roof"]) == ("10.50", "34%")
    assert [cells[name] for name in ("fusion", "update", "rest")] == ["-0.70", "1.00", "0.50"]
    assert sum(map(float, row[3:])) == pytest.approx(10.5)


def test_parts_pass_through_json() -> None:
    parts = IterationParts.of(LAYERS, 0.009, 0.001)
    assert IterationParts(**json.loads(json.dumps(parts.facts()))) == parts


def test_a_row_a_net() -> None:
    parts = IterationParts.of(LAYERS, 0.009, 0.001)
    lines = list(part_lines([("one", 0.01, parts), ("two", 0.02, parts)]))
    assert [line.split()[0] for line in lines[:3]] == ["net", "one", "two"]
