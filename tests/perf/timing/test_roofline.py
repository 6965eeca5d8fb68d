"""The roofline's arithmetic: operations, bytes and least times of a small net, counted by hand."""

from __future__ import annotations

import math

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.perf.timing.layer_times import LayerTimes, RepetitionTimes
from bpt.perf.timing.peaks import Peak, Peaks
from bpt.perf.timing.roofline import Direction, Itemsizes, LayerWork, backward_work, forward_work, points
from tests.support.golden_cases import graph_of

FLOAT = 4  # bytes
# conv: 2 samples of 3 × 8 × 8 to 4 × 6 × 6; one weight of each output reads 3 · 3 · 3 numbers.
X, CONV, WEIGHTS = 2 * 3 * 8 * 8, 2 * 4 * 6 * 6, 4 * 3 * 3 * 3 + 4  # 384, 288, 112
POOL, IP, IP_WEIGHTS = 2 * 4 * 3 * 3, 2 * 5, 5 * 36 + 5  # 72, 10, 185
NET = """
layer { name: "in" type: "Input" top: "x" top: "label" input_param {
  shape { dim: 2 dim: 3 dim: 8 dim: 8 } shape { dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "again" type: "Power" bottom: "pool" top: "again" }
layer { name: "sum" type: "Eltwise" bottom: "pool" bottom: "again" top: "sum" }
layer { name: "flat" type: "Flatten" bottom: "sum" top: "flat" }
layer { name: "ip" type: "InnerProduct" bottom: "flat" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
# 100 operations and 10 bytes a second.
PEAKS = Peaks(Peak("product", ((100.0,),)), Peak("triad", ((10.0,),)))


def works(graph: LayerGraph) -> dict[str, tuple[LayerWork, LayerWork]]:
    """Layer → its work forward and backward; bytes in floats."""
    sizes = Itemsizes.all(graph, FLOAT)
    return {
        node.name: (forward_work(graph, node, sizes), backward_work(graph, node, sizes)) for node in graph.nodes
    }  # fmt: skip


def test_every_blob_and_parameter_goes_by_once() -> None:
    found = works(graph_of(NET))
    conv = CONV * (2 * 27 + 1)
    assert found["conv"] == (
        LayerWork(conv, FLOAT * (X + WEIGHTS + CONV)),
        LayerWork(
            conv, FLOAT * (CONV + X + WEIGHTS)
        ),  # the first layer: diffs of its weights only, of tops' diffs and x
    )
    assert found["relu"] == (LayerWork(CONV, FLOAT * 2 * CONV), LayerWork(CONV, FLOAT * 3 * CONV))
    assert found["pool"] == (
        LayerWork(4 * POOL, FLOAT * (CONV + POOL)),
        LayerWork(
            4 * POOL, FLOAT * (POOL + POOL + CONV)
        ),  # the top's diffs, the places of the maxima; the bottom's diffs
    )
    assert found["sum"] == (
        LayerWork(POOL, FLOAT * 3 * POOL),
        LayerWork(POOL, FLOAT * 3 * POOL),
    )  # its bottoms are not needed
    ip = IP * (2 * 36 + 1)
    assert found["ip"] == (
        LayerWork(ip, FLOAT * (POOL + IP_WEIGHTS + IP)),
        # Both gradients: the top's diffs, x and the weights are read, the diffs of x and of the weights written.
        LayerWork(2 * ip, FLOAT * (IP + POOL + IP_WEIGHTS + POOL + IP_WEIGHTS)),
    )


def test_views_move_nothing_and_splits_add_up_diffs() -> None:
    found = works(graph_of(NET))
    assert found["flat"] == (LayerWork(0, 0), LayerWork(0, 0))
    assert found["pool_pool_0_split"] == (LayerWork(0, 0), LayerWork(POOL, FLOAT * 3 * POOL))  # two diffs to one


def test_half_the_bytes_an_element_are_half_the_bytes() -> None:
    graph = graph_of(NET)
    node = graph.nodes[graph.index_of["conv"]]
    two, four = (Itemsizes.all(graph, itemsize) for itemsize in (2, 4))
    assert forward_work(graph, node, two).bytes * 2 == forward_work(graph, node, four).bytes


def test_what_is_frozen_has_no_gradient() -> None:
    frozen = "param { lr_mult: 0 } param { lr_mult: 0 }"
    text = NET.replace('type: "InnerProduct"', f'type: "InnerProduct" {frozen}')
    found = works(graph_of(text))
    ip = IP * (2 * 36 + 1)
    assert found["ip"][1] == LayerWork(ip, FLOAT * (IP + IP_WEIGHTS + POOL))  # x is a factor of the weights' diffs only
    text = text.replace('type: "Convolution"', f'type: "Convolution" {frozen}')
    found = works(graph_of(text))
    assert all(backward == LayerWork(0, 0) for _, backward in found.values())  # nothing is trained


def test_a_net_without_a_loss_has_no_way_back() -> None:
    text = NET[: NET.index('layer { name: "loss"')]
    graph = graph_of(text, pb.TEST)
    layers = [LayerTimes(node, RepetitionTimes((1.0,)), RepetitionTimes((0.1,))) for node in graph.nodes]
    found = points(graph, layers, Itemsizes.all(graph, FLOAT), PEAKS)
    assert {point.direction for point in found} == {Direction.FORWARD}


@pytest.mark.parametrize(
    ("work", "least", "computes", "intensity"),
    [
        (LayerWork(1000, 50), 10.0, True, 20.0),  # 10 s of computing over 5 s of moving
        (LayerWork(200, 50), 5.0, False, 4.0),
        (LayerWork(0, 50), 5.0, False, 0.0),
        (LayerWork(300, 0), 3.0, True, math.inf),
        (LayerWork(0, 0), 0.0, False, 0.0),
    ],
)
def test_the_higher_roof_binds(work: LayerWork, least: float, computes: bool, intensity: float) -> None:
    assert work.least_seconds(PEAKS) == least
    assert work.is_compute_bound(PEAKS) is computes
    assert work.intensity == intensity
    assert PEAKS.ridge == 10.0


def test_points_are_sorted_by_the_time_above_the_roof() -> None:
    graph = graph_of(NET)
    took = {"conv": (1000.0, 900.0), "ip": (2000.0, 5.0)}
    layers = [
        LayerTimes(node, *(RepetitionTimes((seconds,)) for seconds in took.get(node.name, (0.0, 0.0))))
        for node in graph.nodes
    ]
    found = points(graph, layers, Itemsizes.all(graph, FLOAT), PEAKS)
    # ip: 4 · 267 bytes in 106.8 s. conv: 4 · 784 bytes in 313.6 s, and as many back.
    first = [(point.node.name, point.direction.value, round(point.above, 6)) for point in found[:3]]
    assert first == [("ip", "forward", 1893.2), ("conv", "forward", 686.4), ("conv", "backward", 586.4)]
    assert "in" not in {point.node.name for point in found}
    assert found[-1].above < 0  # a layer faster than memory is shown as it is
