"""Rates, momentum and weight decay that Caffe itself does not have: by hand, and against torch's schedulers."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch.optim import lr_scheduler

from bpt.engine.optim import momentum_policy
from bpt.engine.optim.lr_policy import learning_rate, violations
from bpt.engine.optim.momentum_policy import momentum_at, weight_decay_at
from bpt.engine.optim.rates import NO_LOSS, Plateau, Rates
from bpt.engine.optim.rules import violations as rule_violations
from bpt.engine.optim.unused_settings import ignored_settings
from tests.support.training import optim_of

FIXED = 'base_lr: 0.1 lr_policy: "fixed" '


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        # 0.02 + 0.08 · (i / 4)²
        (FIXED + "rampup_interval: 4 rampup_lr: 0.02", [0.02, 0.025, 0.04, 0.065, 0.1, 0.1]),
        (FIXED + "rampup_interval: 2", [0, 0.025, 0.1]),
        # 0.02 + 0.08 · i / 4; then the policy as if it had been there from the start
        (FIXED + "warmup_iter: 4 warmup_start_lr: 0.02", [0.02, 0.04, 0.06, 0.08, 0.1, 0.1]),
        ('base_lr: 1 lr_policy: "exp" gamma: 0.5 warmup_iter: 2', [0, 0.5, 0.25, 0.125]),
        # a floor, also while the rate rises
        ('base_lr: 1 lr_policy: "exp" gamma: 0.5 min_lr: 0.2', [1, 0.5, 0.25, 0.2, 0.2]),
        (FIXED + "rampup_interval: 2 min_lr: 0.05", [0.05, 0.05, 0.1]),
        # 0.2 + 0.8 · (1 - i / 4)²
        ('base_lr: 1 lr_policy: "poly" power: 2 max_iter: 4 min_lr: 0.2', [1, 0.65, 0.4, 0.25, 0.2, 0.2]),
        ('lr_policy: "multifixed" stagelr: 0.3 stageiter: 1 stagelr: 0.1 stageiter: 3', [0.3, 0.3, 0.1, 0.1, 0.1]),
        # half a cosine over 4 iterations: 1, (1 + √½) / 2, ½, …
        ('base_lr: 1 lr_policy: "cosine" max_iter: 4', [1, 0.8535533905932737, 0.5, 0.1464466094067262, 0, 0]),
        # restarts after 2, and after twice as many
        (
            'base_lr: 1 lr_policy: "cosine" max_iter: 9 min_lr: 0.5 cosine_param { period: 2 growth: 2 }',
            [1, 0.75, 1, 0.9267766952966368, 0.75, 0.5732233047033631, 1],
        ),
    ],
)
def test_rates_by_hand(text: str, rates: list[float]) -> None:
    spec = optim_of(text)
    assert not list(violations(spec))
    assert [learning_rate(spec, iteration) for iteration in range(len(rates))] == pytest.approx(rates, rel=1e-6)


def theirs(make: Callable[[torch.optim.SGD], lr_scheduler.LRScheduler], iterations: int) -> list[tuple[float, float]]:
    """Rate and momentum of each iteration, by torch."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5, momentum=0.85)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = make(optimizer)
        for _ in range(iterations):
            found.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]))
            optimizer.step()
            if len(found) < iterations:
                scheduler.step()
    return found


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ('"cosine" min_lr: 0.01', lambda o: lr_scheduler.CosineAnnealingLR(o, 20, 0.01)),
        ('"cosine" cosine_param { period: 7 }', lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7)),
        (
            '"cosine" min_lr: 0.1 cosine_param { period: 3 growth: 2 }',
            lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2, 0.1),
        ),
        (
            '"onecycle" momentum_policy: "onecycle" max_momentum: 0.95',
            lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=20),
        ),
        (
            '"onecycle" momentum_policy: "onecycle" max_momentum: 0.9 onecycle_param { rising: 0.45 div_factor: 5 '
            "final_div_factor: 10 }",
            lambda o: lr_scheduler.OneCycleLR(
                o, 0.5, total_steps=20, pct_start=0.45, div_factor=5, final_div_factor=10, max_momentum=0.9
            ),
        ),
    ],
)
def test_cycles_are_torchs(text: str, make: Callable[[torch.optim.SGD], lr_scheduler.LRScheduler]) -> None:
    spec = optim_of(f"base_lr: 0.5 momentum: 0.85 max_iter: 20 lr_policy: {text}")
    assert not [*violations(spec), *momentum_policy.violations(spec)]
    ours = [(rate := learning_rate(spec, i), momentum_at(spec, i, rate)) for i in range(20)]
    for our, their in zip(ours, theirs(make, 20), strict=True):
        assert our == pytest.approx(their, rel=1e-6)


def test_plateau_takes_a_step_when_the_loss_has_not_fallen(caplog: pytest.LogCaptureFixture) -> None:
    """Windows of 2, then 3 iterations, each since the smallest loss or the last step; then none are left."""
    spec = optim_of('base_lr: 1 lr_policy: "plateau" gamma: 0.1 plateau_winsize: 2 plateau_winsize: 3')
    assert not list(violations(spec))
    rates, seen = Rates(spec), []
    for iteration, loss in enumerate([5.0, 4.0, 4.0, 4.5, 3.0, 3.1, 3.1, 3.1, 3.1, 3.1]):
        rates.observe(iteration, loss)
        seen.append(rates(iteration))
    # the minimum at 1, a step at 3; the minimum at 4, a step at 7
    assert seen == pytest.approx([1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01])
    assert rates.state() == Plateau(2, 3.0, 7)
    assert [m for m in caplog.messages if "step" in m] == []  # the level is not INFO
    rates.load(Plateau(1, 3.0, 4))
    rates.observe(7, 3.1)
    assert rates.plateau == Plateau(2, 3.0, 7)
    rates.load(None)
    assert rates.plateau == Plateau(0, NO_LOSS, 0)
    other = Rates(optim_of(FIXED))
    other.observe(0, 1.0)
    assert other.state() is None


@pytest.mark.parametrize(
    ("text", "iteration", "momentum"),
    [
        ("momentum: 0.5", 3, 0.5),
        # 0.5 + 0.4 · (3 / 6)²
        ('momentum: 0.5 momentum_policy: "poly" max_momentum: 0.9 momentum_power: 2 max_iter: 6', 3, 0.6),
        # (1 - ½ · √0.16)²
        ('momentum_policy: "opt"', 0, 0.64),
        ('momentum_policy: "opt" max_momentum: 0.6', 0, 0.6),
        # 0.5 · 0.16 / 0.12: the rate on the way from 0 to 0.2 in 5 iterations, and that before
        ("momentum: 0.5 warmup_iter: 5 base_lr: 0.2", 4, 2 / 3),
        ("momentum: 0.5 warmup_iter: 5 base_lr: 0.2", 1, 0.5),  # the one before is 0
        ("momentum: 0.5 warmup_iter: 5 base_lr: 0.2", 5, 0.5),
        ('momentum: 0.5 warmup_iter: 5 base_lr: 0.2 type: "Nesterov"', 4, 0.5),
    ],
)
def test_momentum_by_hand(text: str, iteration: int, momentum: float) -> None:
    spec = optim_of(text)
    assert not list(momentum_policy.violations(spec))
    assert momentum_at(spec, iteration, 0.16) == pytest.approx(momentum, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "decay"),
    [
        ("", 0.04),
        ('weight_decay_policy: "poly" weight_decay_power: 2', 0.01),  # 0.04 · (2 / 4)²
        ('weight_decay_policy: "poly" max_weight_decay: 0.1', 0.07),  # 0.04 + 0.06 · 2 / 4
    ],
)
def test_weight_decay_by_hand(text: str, decay: float) -> None:
    spec = optim_of(f"weight_decay: 0.04 max_iter: 4 {text}")
    assert not list(momentum_policy.violations(spec))
    assert weight_decay_at(spec, 2) == pytest.approx(decay, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FIXED + "rampup_interval: 3 warmup_iter: 2", "rampup_interval and warmup_iter both say how the rate rises"),
        ('lr_policy: "multifixed"', 'stagelr is not set; lr_policy "multifixed" needs it'),
        ('lr_policy: "multifixed" stagelr: 1', "stagelr is given 1 times, and stageiter 0 times"),
        ('lr_policy: "multifixed" stagelr: 1 stageiter: -2', "stageiter is -2; it must be at least 0"),
        ('lr_policy: "multifixed" stagelr: 1 stageiter: 2 warmup_iter: 1', "base_lr is not set"),
        ('base_lr: 1 gamma: 1 lr_policy: "plateau"', "plateau_winsize is not set"),
        ('base_lr: 1 gamma: 1 lr_policy: "plateau" plateau_winsize: 0', "plateau_winsize is 0; it must be at least 1"),
        ('base_lr: 1 lr_policy: "cosine"', "max_iter is 0;"),
        ('base_lr: 1 lr_policy: "cosine" max_iter: 3 min_lr: 2', "min_lr is 2; lr_policy"),
        ('base_lr: 1 lr_policy: "cosine" cosine_param { period: 2 growth: 0 }', "growth is 0; it must be at least 1"),
        ('base_lr: 1 lr_policy: "onecycle" max_iter: 2 onecycle_param { rising: 1 }', "rising is 1; it must be above"),
        (FIXED + 'momentum_policy: "exp"', 'unknown momentum_policy "exp" (known: fixed, poly, opt, onecycle)'),
        (FIXED + 'weight_decay_policy: "poly"', "max_iter is 0; weight_decay_policy"),
        ('base_lr: 4 lr_policy: "fixed" momentum_policy: "opt"', "base_lr is 4;"),
        (FIXED + "larc: true local_lr_auto: true", "larc and local_lr_auto both give each blob its rate"),
        (FIXED + 'larc: true type: "Adam"', "larc gives each blob a rate of its own for SGD and Nesterov, not Adam"),
        (FIXED + 'larc: true larc_policy: "clamp"', 'unknown larc_policy "clamp" (known: scale, clip)'),
        (FIXED + "average_param { decay: 1 }", "decay is 1; it must be at least 0 and below 1"),
        (FIXED + "average_param { interval: 0 }", "interval is 0; it must be at least 1"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    spec = optim_of(text)
    first, *_ = [*violations(spec), *rule_violations(spec)]
    assert message in first.message


def test_what_nobody_reads_is_told() -> None:
    """But of Caffe's own fields nothing is said: its texts carry them along."""
    spec = optim_of(FIXED + "stepsize: 3 rampup_lr: 0.1 larc_eta: 0.1 plateau_winsize: 3")
    assert list(map(str, ignored_settings(spec))) == [
        "rampup_lr has no effect without rampup_interval",
        'plateau_winsize has no effect without lr_policy: "plateau"',
        "larc_eta has no effect without larc: true",
    ]
