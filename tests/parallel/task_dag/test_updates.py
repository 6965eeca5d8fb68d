"""The update as tasks: in the pass, after all that needs the old weights, with the numbers of the update behind it."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.config.plan.resolve import read_plan
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.parallel.task_dag.task_dag import TaskDag
from bpt.system.events.totals import Totals
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support import task_dag_nets as nets
from tests.support.paths import GOLDEN

SHARED = 'param { name: "w" } param { name: "b" }'
NET = (
    """layer { name: "data" type: "Data" top: "x" top: "y" transform_param { scale: 0.00390625 crop_size: 20 }
    data_param { source: "lmdb" backend: LMDB batch_size: 6 } }"""
    + nets.convolution("conv", "x", "num_output: 4 kernel_size: 5 stride: 2")
    + nets.layer("BatchNorm", "conv", "norm")
    + nets.fully_connected("wide", "norm", 40)
    + nets.fully_connected("one", "wide", 40, SHARED)
    + nets.layer("ReLU", "one", "one")
    + nets.fully_connected("two", "one", 40, SHARED)
    + nets.fully_connected("fixed", "two", 12, "param { lr_mult: 0 } param { lr_mult: 3 decay_mult: 0 }")
    + nets.fully_connected("score", "fixed", 10)
    + nets.LOSS
)
SOLVER = """net: "net.prototxt" base_lr: 0.05 momentum: 0.9 weight_decay: 0.001 lr_policy: "step" gamma: 0.5 stepsize: 2
    max_iter: 5 random_seed: 4 snapshot_prefix: "s" engine: CONTIGUOUS snapshot_after_train: false"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "lmdb" / "color_lmdb", tmp_path / "lmdb")
    (tmp_path / "net.prototxt").write_text(NET.replace('"lmdb"', f'"{tmp_path}/lmdb"'))
    (tmp_path / "solver.prototxt").write_text(SOLVER.replace('"s"', f'"{tmp_path}/s"'))
    return tmp_path


def by_tasks(net: Net, device: torch.device) -> Operator:
    return nets.dag_operator(net, device=device, threads=3)


def plain(net: Net, device: torch.device) -> Operator:
    return Operator(net, device=device)


def names_of(operator: Operator) -> list[str]:
    """Those of the tasks of the last pass, backward if that ran apart."""
    timelines = nets.tasks_of(operator).timelines
    both = timelines.get((0, "both"))
    return [task.name for task in (both or timelines[0, "backward"]).dag.tasks]


def trained(folder: Path, tasks: bool, *overrides: str) -> tuple[dict[str, Tensor], list[str]]:
    """Weights and moments after training, and the names of the tasks of the last backward pass."""
    plan = read_plan(str(folder / "solver.prototxt"), overrides)
    with Solver(plan, TrainOptions(make_operator=by_tasks if tasks else plain)) as solver:
        solver.solve()
        weights = {name: value.detach() for name, value in solver.net.named_parameters()}
        moments = {f"moment {index}": moment for index, moment in enumerate(solver.runtime.updater.rule.history)}
        operator, names = solver.runtime.nets.train.operator, []
        if tasks:
            names = names_of(operator)
        return weights | moments, names


def updates_of(names: list[str]) -> list[str]:
    return [name for name in names if " update" in name]


@pytest.mark.parametrize("rule", ["SGD", "Nesterov", "Adam", "AdaDelta"])
def test_the_numbers_of_the_update_behind_the_pass(folder: Path, rule: str) -> None:
    more = f'type: "{rule}" delta: 0.01' + " base_lr: 0.005" * (rule == "Adam")
    expected, _ = trained(folder, False, more)
    actual, names = trained(folder, True, more)
    nets.assert_same(actual, expected, 1e-4 if rule == "AdaDelta" else 1e-5)
    updated = {name.split(" ")[0] for name in updates_of(names)}
    assert updated == {"score", "fixed", "one", "wide", "conv"}, updated


@pytest.mark.parametrize(
    ("setting", "early"),
    [
        ("iter_size: 2", True),  # in the second pass
        ("clip_gradients: 0.5", False),
        ("snapshot_diff: true", False),
    ],
)
def test_where_gradients_must_be_complete_first(folder: Path, setting: str, early: bool) -> None:
    expected, _ = trained(folder, False, setting)
    actual, names = trained(folder, True, setting)
    nets.assert_same(actual, expected, 1e-5)
    assert bool(updates_of(names)) == early


def test_who_looks_at_gradients_finds_them_and_the_old_weights(folder: Path) -> None:
    seen: list[tuple[bool, bool]] = []
    with Solver(read_plan(str(folder / "solver.prototxt")), TrainOptions(make_operator=by_tasks)) as solver:
        values = list(solver.net.parameters())
        before = [value.detach().clone() for value in values]
        solver.runtime.updater.before_update.append(
            lambda loss: seen.append(
                (
                    all(value.grad is not None for value in values if value.requires_grad),
                    all(torch.equal(*pair) for pair in zip(values, before, strict=True) if pair[0].requires_grad),
                )
            )
        )
        solver.step(1)
        assert not all(torch.equal(*pair) for pair in zip(values, before, strict=True))
    assert seen == [(True, True)]


def ancestors_of(dag: TaskDag) -> list[set[int]]:
    found: list[set[int]] = []
    for task in dag.tasks:
        found.append(set(task.needs).union(*(found[need] for need in task.needs)))
    return found


@pytest.mark.parametrize("samples", [1, 6])
def test_no_task_needs_weights_that_another_may_be_changing(samples: int) -> None:
    """What computes by a layer's weights, and what sums their gradient, comes before their update; the update of the
    last layer does not wait for the first."""
    graph = nets.image_net(nets.INCEPTION, samples)
    plan = nets.plan_of(nets.dag_operator(nets.net_of(graph), threads=3))
    dag, ancestors = plan.updating, ancestors_of(plan.updating)
    assert dag.tasks[: len(plan.backward)] == plan.backward.tasks
    names = [task.name for task in dag.tasks]
    updates = {index: name for index, name in enumerate(names) if " update" in name}
    layers = [node.name for node in graph.nodes if node.params]
    for name in layers:
        own = [index for index in updates if names[index].startswith(f"{name} update")]
        assert own, (name, list(updates.values()))
        block = next(block.name for block in plan.blocks if name in [node.name for node in block.nodes])
        sums = (f"{name} filters ", f"{name} gradients")  # of one blob's gradient; the other's need not be there
        users = [
            index
            for index in range(len(plan.backward))
            if f"{names[index]} ".startswith(f"{block} ") and not names[index].startswith(sums)
        ]
        assert users, name
        for update, user in itertools.product(own, users):
            assert user in ancestors[update], (names[update], names[user])
    first = [index for index, name in enumerate(names) if name.startswith("stem..")]
    last = [index for index in updates if names[index].startswith("score update")]
    assert first and not any(task in ancestors[update] for update in last for task in first)


def test_phases_that_are_timed_stand_apart(folder: Path) -> None:
    with Solver(read_plan(str(folder / "solver.prototxt")), TrainOptions(make_operator=by_tasks)) as solver:
        solver.step(1)
        operator = solver.runtime.nets.train.operator
        assert updates_of(names_of(operator))
        with solver.runtime.events.into(Totals()):
            solver.step(1)
        assert not updates_of(names_of(operator))
        assert set(nets.tasks_of(operator).timelines) == {(0, "forward"), (0, "backward")}
