"""Learning rates against the recordings and by hand, and what the policies refuse."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from bpt.base.violation import Violation
from bpt.engine.optim.lr_policy import current_step, learning_rate, log_step, violations
from tests.support.golden_cases import assert_close
from tests.support.paths import GOLDEN
from tests.support.training import SOLVERS, optim_of

RUNS = json.loads((SOLVERS / "runs.json").read_text())


@pytest.mark.parametrize("run", RUNS, ids=[run["name"] for run in RUNS])
def test_rates_of_recorded_runs(run: dict[str, str]) -> None:
    theirs = np.load(SOLVERS / "runs.npz")[f"{run['name']}/lr"]
    param = optim_of(run["solver"])
    assert not list(violations(param))
    ours = np.array([learning_rate(param, iteration) for iteration in range(len(theirs))])
    assert_close(ours, theirs, "lr", 1e-6)


@pytest.mark.parametrize("name", ["SGD_multistep", "SGD_bn_diff", "Adam"])
def test_current_step_of_recorded_snapshots(name: str) -> None:
    info = json.loads((GOLDEN / "snapshots" / name / "info.json").read_text())["solver_state"]
    param = optim_of((GOLDEN / "snapshots" / name / "solver.prototxt").read_text())
    assert current_step(param, info["iter"] - 1) == info["current_step"]


def test_step_boundaries() -> None:
    multistep = optim_of('lr_policy: "multistep" base_lr: 1 gamma: 0.5 stepvalue: 3 stepvalue: 5')
    assert [current_step(multistep, i) for i in range(-1, 7)] == [0, 0, 0, 0, 1, 1, 2, 2]
    assert [learning_rate(multistep, i) for i in range(2, 6)] == [1, 0.5, 0.5, 0.25]
    step = optim_of('lr_policy: "step" base_lr: 1 gamma: 0.5 stepsize: 2')
    assert [current_step(step, i) for i in range(-1, 5)] == [0, 0, 0, 1, 1, 2]


def test_steps_of_multistep_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    multistep = optim_of('lr_policy: "multistep" base_lr: 1 gamma: 0.5 stepvalue: 3 stepvalue: 5')
    with caplog.at_level(logging.INFO, "bpt"):
        for iteration in range(7):
            log_step(multistep, iteration)
            log_step(optim_of('lr_policy: "fixed" base_lr: 1 stepvalue: 3'), iteration)
    assert caplog.messages == ["MultiStep Status: Iteration 3, step = 1", "MultiStep Status: Iteration 5, step = 2"]


@pytest.mark.parametrize(
    ("text", "iteration", "rate"),
    [
        # 0.5 · (1 - 11/10)^1.5 would be no number; the curve has ended at 0.
        ('lr_policy: "poly" base_lr: 0.5 power: 1.5 max_iter: 10', 11, 0),
        ('lr_policy: "poly" base_lr: 0.5 power: 0 max_iter: 10', 10, 0.5),
        # e^-(1 · (0 - 10000)) is more than a double holds: the rate is 0, not an error.
        ('lr_policy: "sigmoid" base_lr: 0.5 gamma: 1 stepsize: 10000', 0, 0),
        ('lr_policy: "sigmoid" base_lr: 0.5 gamma: 1 stepsize: 10000', 20000, 0.5),
        # 0.5 / (1 + e^0)
        ('lr_policy: "sigmoid" base_lr: 0.5 gamma: 1 stepsize: 10', 10, 0.25),
        ('lr_policy: "exp" base_lr: 0.5 gamma: 2', 100000, float("inf")),
        # 0.5 · (1 + 3 · 1)^-0.5
        ('lr_policy: "inv" base_lr: 0.5 gamma: 3 power: 0.5', 1, 0.25),
        ('lr_policy: "step" base_lr: 0.5 gamma: 0 stepsize: 2', 1, 0.5),
        ('lr_policy: "step" base_lr: 0.5 gamma: 0 stepsize: 2', 2, 0),
    ],
)
def test_rate_at_the_edges(text: str, iteration: int, rate: float) -> None:
    param = optim_of(text)
    assert not list(violations(param))
    assert learning_rate(param, iteration) == pytest.approx(rate, abs=1e-300)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "base_lr: 1",
            "lr_policy is not set; use one of cosine, exp, fixed, inv, multifixed, multistep, onecycle, plateau, poly, "
            "sigmoid, step",
        ),
        ('lr_policy: "multistp"', 'unknown lr_policy "multistp"; did you mean "multistep"?'),
        (
            'lr_policy: "warp"',
            'unknown lr_policy "warp" (known: cosine, exp, fixed, inv, multifixed, multistep, onecycle, plateau, poly, '
            "sigmoid, step)",
        ),
        ('lr_policy: "fixed"', 'base_lr is not set; lr_policy "fixed" needs it'),
        ('lr_policy: "fixed" base_lr: -1', "base_lr is -1; it must be at least 0"),
        ('lr_policy: "fixed" base_lr: inf', "base_lr is inf; it must be at least 0"),
        ('lr_policy: "step" base_lr: 1 gamma: 0.1', 'stepsize is not set; lr_policy "step" needs it'),
        ('lr_policy: "step" base_lr: 1 gamma: 0.1 stepsize: 0', "stepsize is 0; it must be at least 1"),
        ('lr_policy: "step" base_lr: 1 stepsize: 5', 'gamma is not set; lr_policy "step" needs it'),
        ('lr_policy: "exp" base_lr: 1', 'gamma is not set; lr_policy "exp" needs it'),
        ('lr_policy: "exp" base_lr: 1 gamma: nan', "gamma is nan; it must be at least 0"),
        ('lr_policy: "inv" base_lr: 1 gamma: 1', 'power is not set; lr_policy "inv" needs it'),
        ('lr_policy: "inv" base_lr: 1 gamma: 1 power: inf', "power is inf; it must be finite"),
        ('lr_policy: "poly" base_lr: 1 power: 2', 'max_iter is not set; lr_policy "poly" needs it'),
        ('lr_policy: "poly" base_lr: 1 power: -2 max_iter: 9', "power is -2; it must be at least 0"),
        ('lr_policy: "sigmoid" base_lr: 1 gamma: -0.1 stepsize: 5', "gamma is -0.1; it must be at least 0"),
        ('lr_policy: "sigmoid" base_lr: 1 gamma: 1', 'stepsize is not set; lr_policy "sigmoid" needs it'),
        ('lr_policy: "multistep" base_lr: 1 gamma: 1', 'stepvalue is not set; lr_policy "multistep" needs it'),
        (
            'lr_policy: "multistep" base_lr: 1 gamma: 1 stepvalue: 5 stepvalue: 5',
            "stepvalue is 5; it must be above the one before, 5",
        ),
        ('lr_policy: "multistep" base_lr: 1 gamma: 1 stepvalue: -1', "stepvalue is -1; it must be at least 0"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    first, *_ = violations(optim_of(text))
    assert first.message == message


def test_a_violation_has_its_field() -> None:
    param = optim_of('lr_policy: "multistep" base_lr: 1 gamma: 1 stepvalue: 9 stepvalue: 5')
    assert list(violations(param)) == [
        Violation(("stepvalue", 1), "stepvalue is 5; it must be above the one before, 9")
    ]
