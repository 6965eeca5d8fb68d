"""Forward and backward in one DAG: no barrier between them, and the numbers of the two apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import cut
from bpt.parallel.task_dag.segment_plan import SegmentPlan
from bpt.parallel.task_dag.task_dag import TaskDag
from tests.support import task_dag_nets
from tests.support.cut_nets import BRANCHES, CHAINS, make_net


def results_of(operator: Operator, joined: bool, passes: int = 2) -> dict[str, Tensor]:
    """Losses, outputs, gradients that add up, and the inputs' diffs; in float64.

    Args:
        joined: run the last segment forward and backward in one.
    """
    net = operator.net.double()
    graph, generator = net.graph, torch.Generator().manual_seed(3)
    last, losses = len(operator.segments) - 1, []
    for number in range(passes):
        for edge in graph.edges:
            if graph.nodes[edge.producer].type == "Input":
                images = torch.randn(edge.shape, generator=generator, dtype=torch.float64)
                labels = torch.randint(0, 4, edge.shape, generator=generator).float()
                operator.feed({edge.index: labels if len(edge.shape) == 1 else images})
        operator.begin_pass(0, number)
        for index in range(last):
            operator.forward(index)
        if joined:
            assert operator.can_join
            operator.forward_backward(last)
        else:
            operator.forward(last)
            operator.backward(last)
        for index in reversed(range(last)):
            operator.backward(index)
        losses.append(operator.loss())
    grads = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    ends = {f"value {edge.index}": operator.values[edge.index] for edge in graph.outputs}
    diffs = {f"diff {edge}": diff for edge, diff in operator.diffs.items()}
    return {"losses": torch.stack(losses), **grads, **ends, **diffs}


@pytest.mark.parametrize("layers", [*CHAINS.values(), *BRANCHES.values()], ids=[*CHAINS, *BRANCHES])
def test_small_nets_of_all_sorts(layers: list[str]) -> None:
    for force_backward in (False, True):
        for starts in (lambda n: (0,)), (lambda n: (0, n // 2)):
            nets = [make_net(layers, force_backward) for _ in range(2)]
            kinds: tuple[Callable[..., Operator], ...] = (Operator, task_dag_nets.dag_operator)
            plain, tasks = (
                kind(net, cut(net.graph, starts(len(net.graph)))) for kind, net in zip(kinds, nets, strict=True)
            )
            task_dag_nets.assert_same(results_of(tasks, tasks.can_join), results_of(plain, False), 1e-12)


@pytest.mark.parametrize("layers", [task_dag_nets.INCEPTION, task_dag_nets.BATCH_NORM], ids=["inception", "batch norm"])
@pytest.mark.parametrize("samples", [1, 5, 6])
@pytest.mark.parametrize("engine", task_dag_nets.ENGINES.values(), ids=task_dag_nets.ENGINES)
def test_larger_nets(layers: str, samples: int, engine: int) -> None:
    if layers is task_dag_nets.BATCH_NORM and samples == 1:
        pytest.skip("nothing to run side by side")
    graph = task_dag_nets.image_net(layers, samples)
    operator = task_dag_nets.dag_operator(task_dag_nets.net_of(graph), engine=engine, threads=3)
    expected = results_of(Operator(task_dag_nets.net_of(graph), engine=engine), False)
    task_dag_nets.assert_same(results_of(operator, True), expected, 1e-12)
    assert list(task_dag_nets.tasks_of(operator).timelines) == [(0, "both")]


def joined(graph: LayerGraph) -> tuple[SegmentPlan, TaskDag, list[set[int]]]:
    """The plan, its DAG of both, and which tasks each one waits for, directly or not."""
    plan = task_dag_nets.plan_of(task_dag_nets.dag_operator(task_dag_nets.net_of(graph), threads=3))
    assert plan.both is not None
    found: list[set[int]] = []
    for task in plan.both.tasks:
        found.append(set(task.needs).union(*(found[need] for need in task.needs)))
    return plan, plan.both, found


def named(dag: TaskDag, start: str, first: int = 0, last: int | None = None) -> list[int]:
    found = [index for index, task in enumerate(dag.tasks[:last]) if index >= first and task.name.startswith(start)]
    assert found, start
    return found


def test_backward_of_one_loss_does_not_wait_for_the_other() -> None:
    """But every task of it does for forward of its own layers."""
    plan, dag, ancestors = joined(task_dag_nets.image_net(task_dag_nets.INCEPTION, 6))
    half = len(plan.forward)
    assert dag.tasks[:half] == plan.forward.tasks
    backward = named(dag, "SoftmaxWithLoss aux y aux_loss", half)
    own = named(dag, "SoftmaxWithLoss aux y aux_loss", 0, half)
    other = named(dag, "SoftmaxWithLoss score y loss", 0, half)
    for task in backward:
        assert ancestors[task].issuperset(own) and ancestors[task].isdisjoint(other)
    for task in named(dag, "stem", half):
        assert ancestors[task].issuperset(named(dag, "stem", 0, half))


def test_weights_wait_for_a_branch_that_has_no_backward_pass() -> None:
    """It only looks: its layer computes by the weights of one that is trained."""
    shared = 'param { name: "w" } param { name: "b" }'
    text = (
        task_dag_nets.convolution("conv", "x", "num_output: 4 kernel_size: 3")
        + task_dag_nets.fully_connected("score", "conv", 5, shared)
        + task_dag_nets.LOSS
        + task_dag_nets.layer("Power", "conv", "seen", "propagate_down: false")
        + task_dag_nets.fully_connected("look", "seen", 5, f"{shared} propagate_down: false")
        + task_dag_nets.layer("ArgMax", "look", "class")
    )
    plan, dag, ancestors = joined(task_dag_nets.image_net(text, 6))
    (beside,) = (block for block in plan.blocks if "look" in [node.name for node in block.nodes])
    assert not beside.needs_backward
    looking = named(dag, beside.name, 0, len(plan.forward))
    half = len(plan.forward)
    updates = [index for index in named(dag, "score", half) if " update" in dag.tasks[index].name]
    assert updates
    for task in updates:
        assert ancestors[task].issuperset(looking)


def test_who_talks_to_nobody_joins() -> None:
    graph = task_dag_nets.image_net(task_dag_nets.INCEPTION)
    assert task_dag_nets.dag_operator(task_dag_nets.net_of(graph), threads=2).can_join
    assert not task_dag_nets.dag_operator(task_dag_nets.net_of(graph), threads=1).can_join
    assert not Operator(task_dag_nets.net_of(graph)).can_join
