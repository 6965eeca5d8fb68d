"""The table of ``bpt time``: LeNet's parameters and work counted by hand, speeds from given times."""

from __future__ import annotations

import pytest

from bpt.graph.layer_graph import LayerGraph
from bpt.perf.timing.layer_times import LayerTimes, PassTimes, RepetitionTimes
from bpt.perf.timing.timetable import caffe_lines, table
from tests.support.golden_cases import graph_of

LENET = """
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 64 dim: 1 dim: 28 dim: 28 } shape { dim: 64 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 20 kernel_size: 5 } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 50 kernel_size: 5 } }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool2" top: "ip1" inner_product_param { num_output: 500 } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
# Outputs × (2 × inputs of an output + 1 for the bias), in millions; parameters.
COUNTED = {
    "conv1": ("37.601", "520"),  # 64·20·24·24 · (2·25 + 1); 20·25 + 20
    "pool1": ("0.737", ""),  # 64·20·12·12 · 4
    "conv2": ("205.005", "25050"),  # 64·50·8·8 · (2·20·25 + 1); 50·20·25 + 50
    "pool2": ("0.205", ""),  # 64·50·4·4 · 4
    "ip1": ("51.232", "400500"),  # 64·500 · (2·800 + 1); 500·800 + 500
    "relu1": ("0.032", ""),  # 64·500
    "ip2": ("0.641", "5010"),  # 64·10 · (2·500 + 1); 10·500 + 10
}


def times(*milliseconds: float) -> RepetitionTimes:
    return RepetitionTimes(tuple(value / 1e3 for value in milliseconds))


def rows(graph: LayerGraph, forward: RepetitionTimes, update: RepetitionTimes | None = None) -> dict[str, list[str]]:
    """Name of the row → its other cells, where every layer takes ``forward`` and half a millisecond back."""
    layers = [LayerTimes(node, forward, times(0.5, 0.5)) for node in graph.nodes]
    passes = PassTimes(forward, times(6, 8), times(10, 14), update)
    lines = list(table(graph, layers, passes))
    starts = [lines[1].index(head) for head in ("type", "forward")]
    return {line[: starts[0]].strip(): line[starts[0] :].split() for line in lines[2:]}


def test_lenets_work_and_parameters() -> None:
    found = rows(graph_of(LENET), times(2, 2))
    for name, (work, parameters) in COUNTED.items():
        kind, forward, _, spread, backward, _, _, *rest = found[name]
        assert (forward, spread, backward) == ("2.000", "0.000", "0.500")
        speed = f"{float(work) / 2:.1f}"  # MFLOP in 2 ms: GFLOP/s
        assert rest == [*([parameters] if parameters else []), work, speed], (name, kind)
    # 520 + 25050 + 400500 + 5010, as in Caffe's documentation of LeNet.
    assert "431080" in found["whole net"]


def test_a_time_too_short_for_the_clock_has_no_speed() -> None:
    found = rows(graph_of(LENET), times(0, 0))
    assert found["conv1"][-1] == COUNTED["conv1"][0]
    assert found["whole net"][-2] == "431080"


def test_median_and_spread() -> None:
    # Sorted 1 2 3 4 9: median 3, quartiles 2 and 4, half their distance 1.
    found = rows(graph_of(LENET), times(9, 1, 3, 2, 4), update=times(5))
    assert found["relu1"][1:4] == ["3.000", "±", "1.000"]
    assert found["update"] == ["5.000", "±", "0.000"]
    assert found["sum of layers"][0] == "27.000"  # 9 layers


def test_no_update_no_row() -> None:
    assert "update" not in rows(graph_of(LENET), times(1))


def test_a_layer_that_reads_data_is_explained() -> None:
    graph = graph_of(LENET)
    layers = [LayerTimes(node, times(1), times(1)) for node in graph.nodes]
    passes = PassTimes(times(1), times(1), times(2), None)
    assert list(table(graph, layers, passes, ["data"]))[-1] == (
        "data: forward is the wait for a batch, which another thread prepares."
    )


@pytest.mark.parametrize("update", [None, times(0.5, 1.5)])
def test_caffes_lines_show_means(update: RepetitionTimes | None) -> None:
    graph = graph_of(LENET)
    layers = [LayerTimes(node, times(1, 2), times(3, 5)) for node in graph.nodes[1:2]]
    passes = PassTimes(times(1.25, 1.25), times(2, 4), times(4, 6), update)
    assert list(caffe_lines(layers, passes)) == [
        "Average time per layer: ",
        "     conv1\tforward: 1.5 ms.",
        "     conv1\tbackward: 4 ms.",
        "Average Forward pass: 1.25 ms.",
        "Average Backward pass: 3 ms.",
        *(["Average Update: 1 ms."] if update else []),
        "Average Forward-Backward: 5 ms.",
        "Total Time: 10 ms.",
    ]
