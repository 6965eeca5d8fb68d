"""TaskDagCompute: whatever it splits and runs side by side, it gives LibraryCompute's numbers."""

from __future__ import annotations

import gc
import weakref
from itertools import permutations

import pytest
import torch
from torch import Tensor

from bpt.base.errors import RunError
from bpt.engine.operator import Operator
from bpt.graph.segments import cut, per_layer
from bpt.nn.net import Net
from bpt.parallel.task_dag.split_strategy import SplitKind
from bpt.parallel.task_dag.task_costs import GRAIN
from tests.support import task_dag_nets as nets
from tests.support.cut_nets import BRANCHES, CHAINS, INPUT, make_net
from tests.support.golden_cases import graph_of


def values_of(net: Net) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in net.named_parameters()}


def kinds(operator: Operator) -> dict[str, SplitKind]:
    return {node.name: block.strategy.kind for block in nets.plan_of(operator).blocks for node in block.nodes}


@pytest.mark.parametrize("force_backward", [False, True])
@pytest.mark.parametrize("layers", [*CHAINS.values(), *BRANCHES.values()], ids=[*CHAINS, *BRANCHES])
def test_small_nets_of_all_sorts(layers: list[str], force_backward: bool) -> None:
    for starts in (lambda n: (0,)), (lambda n: (0, n // 2)), (lambda n: tuple(range(n))):
        results = []
        for kind in (Operator, nets.dag_operator):
            net = make_net(layers, force_backward)
            results.append(nets.pass_over(kind(net, cut(net.graph, starts(len(net.graph)))), passes=2))
        nets.assert_same(results[1], results[0], 1e-12)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("samples", [1, 2, 5, 6])
@pytest.mark.parametrize("engine", nets.ENGINES.values(), ids=nets.ENGINES)
def test_inception(threads: int, samples: int, engine: int) -> None:
    graph = nets.image_net(nets.INCEPTION, samples)
    expected = nets.pass_over(Operator(nets.net_of(graph), engine=engine), passes=2)
    operator = nets.dag_operator(nets.net_of(graph), engine=engine, threads=threads)
    nets.assert_same(nets.pass_over(operator, passes=2), expected, 1e-12)
    assert bool(nets.tasks_of(operator).timelines) == (threads > 1)


@pytest.mark.parametrize("samples", [2, 7])
def test_in_float32_to_1e_5(samples: int) -> None:
    graph = nets.image_net(nets.INCEPTION, samples)
    expected = nets.pass_over(Operator(nets.net_of(graph)), double=False)
    actual = nets.pass_over(nets.dag_operator(nets.net_of(graph)), double=False)
    nets.assert_same(actual, expected, 1e-5)


@pytest.mark.parametrize(("samples", "double"), [(6, True), (5, True), (8, False)])
@pytest.mark.parametrize("engine", nets.ENGINES.values(), ids=nets.ENGINES)
def test_batch_norm_sees_all_samples_and_keeps_its_statistics(samples: int, double: bool, engine: int) -> None:
    graph = nets.image_net(nets.BATCH_NORM, samples)
    first, second = nets.net_of(graph), nets.net_of(graph)
    expected = nets.pass_over(Operator(first, engine=engine), double, passes=2)
    operator = nets.dag_operator(second, engine=engine)
    tolerance = 1e-12 if double else 1e-5
    nets.assert_same(nets.pass_over(operator, double, passes=2), expected, tolerance)
    assert kinds(operator)["BatchNorm a b"] == SplitKind.MOMENTS
    assert kinds(operator)["c"] == SplitKind.SAMPLES
    nets.assert_same(values_of(second), values_of(first), tolerance)


def test_forward_alone_and_batches_without_parts() -> None:
    graph = nets.image_net(nets.INCEPTION)
    results = []
    for operator in (Operator(nets.net_of(graph)), nets.dag_operator(nets.net_of(graph))):
        operator.forward(0, grad=False)
        results.append(operator.values[graph.blobs["loss"].index])
        with pytest.raises(KeyError):
            operator.backward(0)
    torch.testing.assert_close(results[1], results[0])


def test_the_same_bits_in_every_run() -> None:
    """Sums have a fixed order, whatever the threads do."""
    graph = nets.image_net(nets.INCEPTION)
    operator = nets.dag_operator(nets.net_of(graph), threads=3)
    first = nets.pass_over(operator, double=False)
    kept = {name: value.clone() for name, value in first.items()}
    for _ in range(5):
        operator.net.zero_grad()
        again = nets.pass_over(operator, double=False)
        assert all(torch.equal(again[name], value) for name, value in kept.items())


def test_a_layer_a_segment_and_cutting_anew() -> None:
    graph = nets.image_net(nets.INCEPTION)
    expected = nets.pass_over(Operator(nets.net_of(graph)))
    operator = nets.dag_operator(nets.net_of(graph), per_layer(graph))
    outputs = [name for name in expected if not name.startswith("diff")]
    for starts in (range(len(graph)), (0, 4, 9), (0,)):
        operator.cut_into(cut(graph, list(starts)))
        operator.net.zero_grad()
        actual = nets.pass_over(operator)
        nets.assert_same({name: actual[name] for name in outputs}, {name: expected[name] for name in outputs}, 1e-12)


def test_other_shapes() -> None:
    """A net that is reshaped gets other tasks."""
    graph = nets.image_net(nets.INCEPTION, 4)
    net = nets.net_of(graph)
    operator = nets.dag_operator(net)
    nets.pass_over(operator)
    for samples in (3, 1):
        other = nets.image_net(nets.INCEPTION, samples)
        net.reshape(other)
        operator.reset()
        net.zero_grad()
        nets.assert_same(nets.pass_over(operator), nets.pass_over(Operator(nets.net_of(other))), 1e-12)


def test_ways() -> None:
    """By neurons where there are more weights than activations, by samples else, by areas if there is one sample."""
    text = (
        nets.convolution("conv", "x", "num_output: 4 kernel_size: 3")
        + nets.fully_connected("wide", "conv", 90)
        + nets.layer("ReLU", "wide", "wide")
        + nets.fully_connected("score", "wide", 2)
        + nets.LOSS
    )
    of_many = kinds(nets.dag_operator(nets.net_of(nets.image_net(text, 16))))
    assert of_many["conv"] == of_many["conv_relu"] == SplitKind.SAMPLES
    assert of_many["wide"] == SplitKind.NEURONS
    assert of_many["score"] == SplitKind.SAMPLES
    assert of_many["SoftmaxWithLoss score y loss"] == SplitKind.WHOLE
    of_one = kinds(nets.dag_operator(nets.net_of(nets.image_net(text, 1))))
    assert of_one["conv"] == of_one["conv_relu"] == SplitKind.AREAS
    # What is too small is not split: all of this net, with the usual grain.
    operator = nets.dag_operator(nets.net_of(nets.image_net(text, 16)), grain=GRAIN)
    assert set(kinds(operator).values()) == {SplitKind.WHOLE}
    assert not nets.plan_of(operator).is_parallel


def test_branches_run_side_by_side() -> None:
    """Neither waits for the other, forward or backward."""
    operator = nets.dag_operator(nets.net_of(nets.image_net(nets.INCEPTION, 1)), grain=1e-6)
    plan = nets.plan_of(operator)
    for dag in (plan.forward, plan.backward):
        ancestors: list[set[int]] = []
        for task in dag.tasks:
            ancestors.append(set(task.needs).union(*(ancestors[need] for need in task.needs)))
        heads = ("one..", "three_reduce..", "five..", "Pooling norm")
        branches = [[index for index, task in enumerate(dag.tasks) if task.name.startswith(head)] for head in heads]
        assert all(branches), [task.name for task in dag.tasks]
        for branch, other in permutations(branches, 2):
            assert not any(need in ancestors[task] for task in branch for need in other)


def test_an_error_names_the_layer_and_the_threads_go_on() -> None:
    text = (
        nets.convolution("conv", "x", "num_output: 4 kernel_size: 3")
        + nets.fully_connected("score", "conv", 5)
        + nets.LOSS
    )
    net = nets.net_of(nets.image_net(text))
    operator = nets.dag_operator(net)
    value = net.value(net.graph.params[0])
    with torch.no_grad():
        right, value.data = value.data, torch.zeros(4, 2, 3, 3)
    with pytest.raises(RunError, match=r'layer "conv": .*bottoms of shape'):
        operator.forward(0)
    value.data = right
    nets.assert_same(nets.pass_over(operator), nets.pass_over(Operator(nets.net_of(net.graph))), 1e-12)


def test_library_threads_stay_as_they_are() -> None:
    before = torch.get_num_threads()
    nets.pass_over(nets.dag_operator(nets.net_of(nets.image_net(nets.INCEPTION))))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "forgotten"])
def test_the_threads_end_with_the_operator(closes: bool) -> None:
    before = nets.dag_threads()
    operator = nets.dag_operator(nets.net_of(nets.image_net(nets.INCEPTION)))
    nets.pass_over(operator)
    started = nets.dag_threads() - before
    assert len(started) == 2
    forgotten = weakref.ref(operator)
    if closes:
        operator.compute.close()
    del operator
    gc.collect()
    assert forgotten() is None
    for thread in started:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "window",
    [
        "kernel_size: 3",
        "kernel_size: 3 pad: 2 stride: 2",
        "kernel_size: 2 stride: 3",
        "kernel_size: 3 dilation: 2 pad: 2",
        "kernel_h: 1 kernel_w: 5 pad_h: 1 pad_w: 2 stride_h: 2 stride_w: 1",
        "kernel_size: 3 group: 3 bias_term: false",
    ],
)
@pytest.mark.parametrize("threads", [2, 4])
def test_a_convolution_by_areas(window: str, threads: int) -> None:
    text = (
        nets.convolution("conv", "x", f"num_output: 6 {window}") + nets.fully_connected("score", "conv", 5) + nets.LOSS
    )
    graph = graph_of(f"force_backward: true {image_text(text)}")
    operator = nets.dag_operator(nets.net_of(graph), threads=threads)
    assert kinds(operator)["conv"] == SplitKind.AREAS
    nets.assert_same(nets.pass_over(operator, passes=2), nets.pass_over(Operator(nets.net_of(graph)), passes=2), 1e-12)


@pytest.mark.parametrize("size", ["dim: 2 dim: 11", "dim: 2 dim: 6 dim: 5 dim: 4"], ids=["1 axis", "3 axes"])
def test_a_convolution_by_areas_over_other_axes(size: str) -> None:
    text = (
        nets.convolution("conv", "x", "num_output: 4 kernel_size: 3 pad: 1")
        + nets.fully_connected("score", "conv", 5)
        + nets.LOSS
    )
    graph = nets.image_net(text, 1, size)
    operator = nets.dag_operator(nets.net_of(graph))
    assert kinds(operator)["conv"] == SplitKind.AREAS
    nets.assert_same(nets.pass_over(operator), nets.pass_over(Operator(nets.net_of(graph))), 1e-12)


FLAT, SQUARE, VOLUME = "dim: 3 dim: 1 dim: 33", "dim: 3 dim: 12 dim: 12", "dim: 3 dim: 3 dim: 40 dim: 4"


@pytest.mark.parametrize(
    ("size", "window", "grid"),
    [
        (FLAT, "kernel_size: 3 pad: 1", (1, 4)),  # a top of 1 x 33
        (FLAT, "kernel_size: 3 pad: 2 stride: 2", (2, 2)),  # 2 x 18: 9 places each, or 2 x 5 in the longest of 4
        (FLAT, "kernel_h: 1 kernel_w: 5 pad_h: 1 pad_w: 2 stride_h: 2 stride_w: 3", (2, 2)),  # 2 x 11
        (FLAT, "kernel_h: 2 kernel_w: 3 dilation: 2 pad: 3 group: 3 bias_term: false", (1, 4)),  # 5 x 35
        (SQUARE, "kernel_size: 3 pad: 1", (2, 2)),
        (VOLUME, "kernel_size: 3 pad: 1", (1, 4)),  # 3 x 40 x 4
        (VOLUME, "kernel_size: 3 pad: 2 stride: 2", (1, 4)),  # 3 x 21 x 3
    ],
)
@pytest.mark.parametrize("engine", nets.ENGINES.values(), ids=nets.ENGINES)
def test_a_convolution_by_rows_and_columns(window: str, size: str, grid: tuple[int, int], engine: int) -> None:
    text = (
        nets.convolution("conv", "x", f"num_output: 6 {window}") + nets.fully_connected("score", "conv", 5) + nets.LOSS
    )
    graph = graph_of(f"force_backward: true {image_text(text, size)}")
    operator = nets.dag_operator(nets.net_of(graph), threads=4, engine=engine)
    strategy = next(block.strategy for block in nets.plan_of(operator).blocks if block.nodes[0].name == "conv")
    assert (strategy.kind, strategy.grid) == (SplitKind.AREAS, grid)
    expected = nets.pass_over(Operator(nets.net_of(graph), engine=engine), passes=2)
    nets.assert_same(nets.pass_over(operator, passes=2), expected, 1e-12)


def image_text(layers: str, size: str = "dim: 3 dim: 9 dim: 8") -> str:
    return INPUT.replace("dim: 6 dim: 5", f"dim: 1 {size}").replace("dim: 6", "dim: 1") + layers


@pytest.mark.parametrize("window", ["kernel_size: 3 pad: 1", "kernel_size: 2 stride: 2 dilation: 2 bias_term: false"])
@pytest.mark.parametrize(("samples", "threads"), [(1, 2), (3, 3)])
@pytest.mark.parametrize("engine", nets.ENGINES.values(), ids=nets.ENGINES)
def test_a_convolution_by_filters(window: str, samples: int, threads: int, engine: int) -> None:
    """Of many weights and few places."""
    text = (
        nets.convolution("stem", "x", "num_output: 33 kernel_size: 1")
        + nets.convolution("conv", "stem", f"num_output: 35 {window}")
        + nets.fully_connected("score", "conv", 5)
        + nets.LOSS
    )
    graph = nets.image_net(text, samples, "dim: 3 dim: 5 dim: 4")
    operator = nets.dag_operator(nets.net_of(graph), engine=engine, threads=threads)
    assert kinds(operator)["conv"] == SplitKind.FILTERS
    expected = nets.pass_over(Operator(nets.net_of(graph), engine=engine), passes=2)
    nets.assert_same(nets.pass_over(operator, passes=2), expected, 1e-12)
