"""Rules that need the norms of whole blobs (LARC, LARS, LAMB), AdamW, and averages of weights: by hand, and against
torch where it has them; and on slices as on the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bpt.engine.optim.gradients import LearnableParam
from bpt.engine.optim.rules import UPDATE_RULES, UpdateRule
from bpt.engine.optim.shard_info import Numbers, ShardInfo
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.training import optim_of

DOUBLE = torch.float64


def parameter(name: str, values: object, lr_mult: float = 1.0, decay_mult: float = 1.0) -> LearnableParam:
    return LearnableParam(name, nn.Parameter(torch.tensor(np.array(values), dtype=DOUBLE)), lr_mult, decay_mult)


def rule_of(text: str, *parameters: LearnableParam, keep_updates: bool = False) -> UpdateRule:
    spec = optim_of(text)
    return UPDATE_RULES[spec.type](spec, parameters, keep_updates)


def updated(text: str, weights: object, gradients: list[object], lr_mult: float = 1.0, rate: float = 0.5) -> np.ndarray:
    """The weights after an update by each of the gradients."""
    one = parameter("a/0", weights, lr_mult)
    rule = rule_of(text, one)
    for iteration, gradient in enumerate(gradients):
        one.value.grad = torch.as_tensor(np.asarray(gradient), dtype=DOUBLE)
        assert rule.piecewise(rate, iteration) is None
        rule.update(rate, iteration)
    return one.value.detach().numpy()


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        # ‖w‖ = 5, ‖g‖ = 10: r = (1 - 0) · 0.2 · 5 / 10
        ("larc: true larc_eta: 0.2", 0.5 * 0.1),
        ('larc: true larc_eta: 0.2 larc_policy: "clip"', 0.1),
        ('larc: true larc_eta: 20 larc_policy: "clip"', 0.5),
        # the gradient halved by clipping before
        ("larc: true larc_eta: 0.2 clip_gradients: 5", 0.5 * 0.2 / 2),
        # 0.2 · 5 / (10 + 2 · 5), and then weight decay pulls along w
        ("local_lr_auto: true local_gw_ratio: 0.2", 0.5 * 0.1),
    ],
)
def test_the_rate_of_a_blob_by_hand(settings: str, rate: float) -> None:
    for lr_mult in (1.0, 7.0):  # whose place it takes
        found = updated(settings, [3.0, 4.0], [[6.0, -8.0]], lr_mult)
        np.testing.assert_allclose(found, [3 - rate * 6, 4 + rate * 8], rtol=1e-6)


def test_lars_with_weight_decay_by_hand() -> None:
    rate = 0.5 * 0.2 * 5 / (10 + 2 * 5)
    found = updated("local_lr_auto: true local_gw_ratio: 0.2 weight_decay: 2", [3.0, 4.0], [[6.0, -8.0]])
    np.testing.assert_allclose(found, [3 - rate * (6 + 2 * 3), 4 - rate * (-8 + 2 * 4)], rtol=1e-6)


def test_blobs_of_zeros_and_those_that_go_uphill_have_the_solvers_rate() -> None:
    np.testing.assert_allclose(updated("larc: true", [0.0, 0.0], [[1.0, 2.0]]), [-0.5, -1.0])
    np.testing.assert_allclose(updated("larc: true", [1.0, 1.0], [[1.0, 2.0]], lr_mult=-2.0), [2.0, 3.0])


def test_momentum_takes_its_part_of_larcs_rate() -> None:
    """The second r is of the new weights: with momentum 0.5, w = 4, then 4 - 0.25 · 4 · …"""
    first = 0.5 * (1 - 0.5) * 0.1 * 4 / 2  # 0.5 · r, r = 0.5 · 0.1 · ‖w‖ / ‖g‖
    weight = 4 - first * 2
    second = 0.5 * (1 - 0.5) * 0.1 * weight / 1
    velocity = 0.5 * first * 2 + second * 1
    found = updated("larc: true larc_eta: 0.1 momentum: 0.5", [4.0], [[2.0], [1.0]])
    np.testing.assert_allclose(found, [weight - velocity], rtol=1e-6)


def test_turbo_slows_what_goes_straight_on() -> None:
    """From the third iteration on: the cosine of gradient and velocity is 1, so 0.05, then 0.95 · 0.05 - 0.05."""
    weight, velocity, correlation = 8.0, 0.0, 0.0
    gradients = [1.0, 1.0, 1.0, -1.0]
    for iteration, gradient in enumerate(gradients):
        rate = 0.5 * (1 - 0.5) * 0.1 * abs(weight)
        if iteration > 1:
            correlation = 0.95 * correlation + 0.05 * (1 if gradient > 0 else -1)
        velocity = 0.5 * velocity + rate * (1 - 0.9 * correlation) * gradient
        weight -= velocity
    found = updated("larc: true larc_eta: 0.1 larc_turbo: true momentum: 0.5", [8.0], [[g] for g in gradients])
    np.testing.assert_allclose(found, [weight], rtol=1e-6)


def trained(text: str, optimizer: torch.optim.Optimizer, theirs: list[nn.Parameter], keep_updates: bool) -> None:
    """Both from the same weights, with the same gradients; ours must be theirs."""
    ours = [parameter(f"{i}/0", value.detach().numpy()) for i, value in enumerate(theirs)]
    rule = rule_of(text, *ours, keep_updates=keep_updates)
    generator = torch.Generator().manual_seed(1)
    for iteration in range(6):
        for one, other in zip(ours, theirs, strict=True):
            one.value.grad = torch.randn(other.shape, generator=generator, dtype=DOUBLE)
            other.grad = one.value.grad.clone()
        rule.update(0.01, iteration)
        optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.value.detach(), other.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("keep_updates", [False, True], ids=["fast", "keeping updates"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_is_torchs(decay: float, keep_updates: bool) -> None:
    values = [nn.Parameter(torch.randn(3, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(i))) for i in (2, 3)]
    optimizer = torch.optim.AdamW(values, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=float(np.float32(decay)))
    optimizer.param_groups[0]["betas"] = (float(np.float32(0.9)), float(np.float32(0.99)))
    optimizer.param_groups[0]["eps"] = float(np.float32(1e-8))
    text = f'type: "AdamW" momentum: 0.9 momentum2: 0.99 weight_decay: {decay}'
    trained(text, optimizer, values, keep_updates)


def lamb(weights: np.ndarray, gradients: list[np.ndarray], rate: float, decay: float) -> np.ndarray:
    """Algorithm 2 of the paper, line by line."""
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    first, second = float(np.float32(0.9)), float(np.float32(0.99))
    for time, gradient in enumerate(gradients, 1):
        mean = first * mean + (1 - first) * gradient
        square = second * square + (1 - second) * gradient**2
        ratio = mean / (1 - first**time) / (np.sqrt(square / (1 - second**time)) + float(np.float32(1e-6)))
        update = ratio + decay * weights
        norm = np.linalg.norm(weights) / np.linalg.norm(update) if weights.any() and update.any() else 1.0
        weights = weights - rate * norm * update
    return weights


LAMB = 'type: "LAMB" momentum: 0.9 momentum2: 0.99 delta: 1e-6 weight_decay: 0.5'


def test_lamb_is_the_papers() -> None:
    draw = np.random.default_rng(3)
    weights, gradients = draw.standard_normal((3, 4)), [draw.standard_normal((3, 4)) for _ in range(4)]
    expected = lamb(weights, gradients, 0.5, 0.5)
    np.testing.assert_allclose(updated(LAMB, weights, list(gradients)), expected, rtol=1e-6)
    zeros = np.zeros((3, 4))
    np.testing.assert_allclose(updated(LAMB, zeros, [gradients[0]]), lamb(zeros, gradients[:1], 0.5, 0.5), rtol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        "larc: true larc_turbo: true momentum: 0.9 larc_eta: 0.1 clip_gradients: 2 iter_size: 2",
        'type: "Nesterov" local_lr_auto: true local_gw_ratio: 0.1 momentum: 0.9 weight_decay: 0.1',
        LAMB + " clip_gradients: 1",
    ],
)
def test_slices_are_updated_as_the_whole(settings: str) -> None:
    """Two ranks with a slice each of one blob, and another blob that both hold."""
    draw = np.random.default_rng(2)
    shared, split = draw.standard_normal(4), draw.standard_normal((5, 3))
    gradients = [(draw.standard_normal(4), draw.standard_normal((5, 3))) for _ in range(4)]
    rows = (slice(0, 3), slice(3, 5))

    def train(rule: UpdateRule, part: slice) -> tuple[np.ndarray, ...]:
        whole, sliced = rule.parameters
        for iteration, (of_shared, of_split) in enumerate(gradients):
            whole.value.grad = torch.tensor(of_shared)
            sliced.value.grad = torch.tensor(of_split[part])
            rule.update(0.3, iteration)
        return tuple(p.value.detach().numpy() for p in rule.parameters)

    def run(comm: Communicator) -> tuple[np.ndarray, ...]:
        def total(value: float) -> float:
            number = np.array([value])
            comm.Allreduce(number)
            return float(number[0])

        def totals(numbers: Numbers, columns: int) -> Mapping[str, list[float]]:
            table = np.array([numbers.get(name, [0.0] * columns) for name in ("a/0", "b/0")])
            comm.Allreduce(table)
            return {"a/0": list(table[0]), "b/0": list(table[1])}

        whole, sliced = parameter("a/0", shared), parameter("b/0", split[rows[comm.rank]])
        rule = rule_of(settings, whole, sliced)
        counted = frozenset({id(sliced.value)} if comm.rank else {id(whole.value), id(sliced.value)})
        rule.shard_info = ShardInfo(counted=counted, total=total, totals=totals)
        return train(rule, rows[comm.rank])

    first, second = run_ranks(2, run)
    alone = train(rule_of(settings, parameter("a/0", shared), parameter("b/0", split)), slice(0, 5))
    np.testing.assert_allclose(first[0], alone[0], rtol=1e-9)
    np.testing.assert_array_equal(second[0], first[0])
    np.testing.assert_allclose(np.concatenate([first[1], second[1]]), alone[1], rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "average"),
    [("decay: 0.75", get_ema_multi_avg_fn(0.75)), ("kind: SWA", None)],
    ids=["EMA", "SWA"],
)
def test_averages_are_torchs(text: str, average: object) -> None:
    """From the second weights on, every other one."""
    one = parameter("a/0", np.arange(3.0))
    rule = rule_of(f"momentum: 0.5 average_param {{ {text} start: 2 interval: 2 }}", one)
    model = nn.Linear(3, 1, bias=False).double()
    theirs = AveragedModel(model, multi_avg_fn=average)  # type: ignore[arg-type]
    for iteration in range(8):
        one.value.grad = torch.full((3,), float(iteration), dtype=DOUBLE)
        rule.update(0.1, iteration)
        rule.average(iteration + 1)
        if iteration in (1, 3, 5, 7):
            with torch.no_grad():
                model.weight.copy_(one.value.view(1, 3))
            theirs.update_parameters(model)
            np.testing.assert_allclose(rule.averages[0], cast("nn.Linear", theirs.module).weight[0].detach(), rtol=1e-6)
    assert len(rule.history) == 2
