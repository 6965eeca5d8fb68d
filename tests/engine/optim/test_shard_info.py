"""An update rule among other ranks: what they update it leaves alone, and the norm of the gradients is that of all."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from bpt.engine.optim.gradients import LearnableParam
from bpt.engine.optim.rules import UPDATE_RULES, UpdateRule
from bpt.engine.optim.shard_info import ALONE, ShardInfo
from bpt.system.comm.base import Communicator
from tests.engine.optim.reference import Reference
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import assert_close
from tests.support.training import optim_of

RULES = {
    "SGD": "momentum: 0.9",
    "Nesterov": "momentum: 0.8",
    "AdaGrad": "delta: 0.01",
    "RMSProp": "rms_decay: 0.9 delta: 0.01",
    "AdaDelta": "momentum: 0.95 delta: 1e-3",
    "Adam": "momentum: 0.9 momentum2: 0.99 delta: 1e-4",
}
SETTINGS = "weight_decay: 0.05 clip_gradients: 1.5 iter_size: 2"


def parameter(name: str, values: np.ndarray) -> LearnableParam:
    return LearnableParam(name, nn.Parameter(torch.tensor(values, dtype=torch.float32)))


def rule_of(kind: str, *parameters: LearnableParam, settings: str = SETTINGS) -> UpdateRule:
    return UPDATE_RULES[kind](optim_of(f'type: "{kind}" {RULES[kind]} {settings}'), parameters)


def ids(*parameters: LearnableParam) -> frozenset[int]:
    return frozenset(id(each.value) for each in parameters)


def test_alone_all_is_counted_and_updated() -> None:
    one = parameter("a/0", np.ones(2))
    assert ALONE.counts(one)
    assert ALONE.updates
    assert ALONE.total(3.0) == 3.0
    assert rule_of("SGD", one).shard_info == ALONE


@pytest.mark.parametrize("kind", RULES)
def test_what_another_rank_updates_is_left_alone(kind: str) -> None:
    """Its weights, its history and its decay; only its gradient is dropped. The other one is as if it was alone."""
    values = [np.array([1.0, -2.0]), np.array([0.5, 3.0, 1.0])]
    mine, others = parameter("a/0", values[0]), parameter("b/0", values[1])
    rule = rule_of(kind, mine, others, settings="weight_decay: 0.05")
    rule.shard_info = ShardInfo(frozen=ids(others))
    reference = Reference(rule.spec, [values[0]], [1.0], [1.0])
    for iteration in range(3):
        gradient = np.array([0.3, -0.1]) * (iteration + 1)
        mine.value.grad = torch.tensor(gradient, dtype=torch.float32)
        others.value.grad = torch.ones(3)
        rule.update(0.1, iteration)
        reference.update([gradient], 0.1, iteration)
        assert mine.value.grad is None
        assert others.value.grad is None
    assert others.value.tolist() == values[1].tolist()
    assert [history.tolist() for history in rule.history[1::2]] == [[0, 0, 0]] * rule.moments
    assert_close(mine.value.detach().numpy(), reference.weights[0], "weights", 1e-5)


def test_a_rank_that_updates_nothing_asks_nobody_and_drops_its_gradients() -> None:
    one = parameter("a/0", np.ones(2))
    rule = rule_of("SGD", one)

    def total(value: float) -> float:
        raise AssertionError("the others do not ask")

    rule.shard_info = ShardInfo(frozen=ids(one), total=total, updates=False)
    one.value.grad = torch.full((2,), 100.0)
    rule.update(0.1, 0)
    assert one.value.grad is None
    assert one.value.tolist() == [1, 1]


def test_a_rank_without_gradients_takes_part_in_the_norm() -> None:
    """Another rank of its replica waits for it."""
    asked = []

    def total(value: float) -> float:
        asked.append(value)
        return value + 16.0

    empty = parameter("a/0", np.zeros((0, 3)))
    rule = rule_of("SGD", empty, settings="clip_gradients: 1")
    rule.shard_info = ShardInfo(total=total)
    rule.update(0.1, 0)
    rule = rule_of("SGD", settings="clip_gradients: 1")
    rule.shard_info = ShardInfo(total=total)
    rule.update(0.1, 0)
    assert asked == [0, 0]


def test_without_clipping_nobody_asks_for_the_norm() -> None:
    one = parameter("a/0", np.ones(2))
    rule = rule_of("SGD", one, settings="")
    rule.shard_info = ShardInfo(total=lambda value: pytest.fail("asked"))
    one.value.grad = torch.ones(2)
    rule.update(0.1, 0)


def test_the_norm_is_of_what_each_counts() -> None:
    """Here 3 of (3, 100), elsewhere 4: the norm is 5, and clipped to 1 the gradient is a fifth."""
    counted, also_elsewhere = parameter("a/0", np.zeros(1)), parameter("b/0", np.zeros(1))
    rule = UPDATE_RULES["SGD"](optim_of("clip_gradients: 1"), [counted, also_elsewhere])
    asked = []

    def total(value: float) -> float:
        asked.append(value)
        return value + 4.0**2

    rule.shard_info = ShardInfo(counted=ids(counted), total=total)
    counted.value.grad, also_elsewhere.value.grad = torch.tensor([3.0]), torch.tensor([100.0])
    rule.update(1.0, 0)
    assert asked == [pytest.approx(9.0)]
    assert counted.value.item() == pytest.approx(-3 / 5)
    assert also_elsewhere.value.item() == pytest.approx(-100 / 5)


def test_nothing_counted_is_not_all_counted() -> None:
    one = parameter("a/0", np.zeros(1))
    assert not ShardInfo(counted=frozenset()).counts(one)
    assert ShardInfo(counted=None).counts(one)


@pytest.mark.parametrize("kind", RULES)
def test_slices_are_clipped_as_the_whole(kind: str) -> None:
    """Two ranks with a slice each, and a parameter that both hold."""
    generator = np.random.default_rng(2)
    shared, split = generator.standard_normal(4), generator.standard_normal((5, 3))
    gradients = [(generator.standard_normal(4), generator.standard_normal((5, 3))) for _ in range(3)]
    rows = (slice(0, 3), slice(3, 5))

    def run(comm: Communicator) -> tuple[np.ndarray, np.ndarray]:
        def total(value: float) -> float:
            number = np.array([value])
            comm.Allreduce(number)
            return float(number[0])

        whole, slice_ = parameter("a/0", shared), parameter("b/0", split[rows[comm.rank]])
        rule = rule_of(kind, whole, slice_)
        rule.shard_info = ShardInfo(counted=ids(slice_) if comm.rank else ids(whole, slice_), total=total)
        for iteration, (of_shared, of_split) in enumerate(gradients):
            whole.value.grad = torch.tensor(of_shared, dtype=torch.float32)
            slice_.value.grad = torch.tensor(of_split[rows[comm.rank]], dtype=torch.float32)
            rule.update(0.1, iteration)
        return whole.value.detach().numpy(), slice_.value.detach().numpy()

    first, second = run_ranks(2, run)
    reference = Reference(optim_of(f'type: "{kind}" {RULES[kind]} {SETTINGS}'), [shared, split], [1.0] * 2, [1.0] * 2)
    for iteration, both in enumerate(gradients):
        assert math.sqrt(sum((each**2).sum() for each in both)) > 1.5  # it is clipped
        reference.update(list(both), 0.1, iteration)
    assert_close(first[0], reference.weights[0], "shared", 1e-5)
    np.testing.assert_array_equal(second[0], first[0])
    assert_close(np.concatenate([first[1], second[1]]), reference.weights[1], "slices", 1e-5)
