"""The table of a net; its numbers are worked out in tests/tools/test_net_summary.py."""

from __future__ import annotations

from bpt.apps.draw.layer_table import csv_text, summary_of, text_lines
from tests.support.golden_cases import graph_of

NET = """
name: "n"
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
layer { name: "s" type: "Split" bottom: "x" top: "a" top: "b" }
layer { name: "c" type: "Concat" bottom: "a" bottom: "b" bottom: "x2" top: "c" }
"""


def test_only_splits_of_the_text_are_shown() -> None:
    graph = graph_of(
        NET.replace(' bottom: "x2"', "").replace('bottom: "b" top: "c"', 'bottom: "b" bottom: "b" top: "c"')
    )
    assert sum(node.type == "Split" for node in graph.nodes) == 2  # one is automatic
    summary = summary_of(graph)
    assert [(line.name, line.activations) for line in summary.lines] == [("in", 48), ("s", 0), ("c", 144)]
    assert (summary.name, summary.phase, summary.batch, summary.activations) == ("n", "TRAIN", 4, 192)


def test_types_of_layers_that_others_stand_for() -> None:
    graph = graph_of('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }')
    assert summary_of(graph, {"in": "Data"}).lines[0].type == "Data"


def test_text_and_csv_have_a_line_for_each_layer_and_a_total() -> None:
    summary = summary_of(graph_of('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }'))
    lines = list(text_lines(summary))
    assert lines[0] == "the net, TRAIN, batch of 2"
    assert [line.split()[0] for line in lines[2:7]] == [
        "layer",
        "-" * len(lines[3]),
        "in",
        "-" * len(lines[3]),
        "total",
    ]
    assert csv_text(summary).splitlines()[1:] == ["in,Input,2,0,0,0,8,0", "total,,,0,0,0,8,0"]
