"""Training on a device that computes apart: losses are read where they are shown, and the curve is the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from bpt.base.errors import DivergedError
from bpt.config.plan.resolve import read_plan
from bpt.train.runtime.smoothed_loss import MOST_LATE
from bpt.train.solver.milestones import Displayed
from bpt.train.solver.solver import Solver
from tests.support.doubles.late_device import late_device
from tests.support.small_solver import small_solver
from tests.train.runtime.summed_data import set_up

OVERFLOWING = 1e20  # in the loss of the net of summed_data


def trained(summed: Path, late: bool, *overrides: str) -> tuple[list[object], list[torch.Tensor], list[str]]:
    """What was displayed in 7 iterations, the weights behind them, and what the device was called for."""
    plan = small_solver(summed, f'snapshot_prefix: "{summed}/snap" random_seed: 3', *overrides)
    shown: list[object] = []
    with late_device() if late else nullcontext() as cuda, Solver(plan) as solver:
        solver.listeners.append(
            lambda each: shown.append((each.iteration, each.loss)) if isinstance(each, Displayed) else None
        )
        solver.step(7)
        shown.append(solver.loss)
        weights = [value.detach().clone() for value in solver.net.parameters()]
        return shown, weights, cuda.calls if cuda else []


@pytest.mark.parametrize("overrides", ["display: 3", "display: 3 average_loss: 4", "iter_size: 2 display: 2"])
def test_the_curve_is_the_same(tmp_path: Path, overrides: str) -> None:
    shown, weights, _ = trained(tmp_path, False, overrides)
    late, late_weights, _ = trained(tmp_path, True, overrides)
    assert late == shown
    assert all(map(torch.equal, late_weights, weights))


def test_the_host_waits_at_displays_and_at_the_end(tmp_path: Path) -> None:
    _, _, calls = trained(tmp_path, True, "display: 4")
    # Iterations 0 and 4 are displayed: their losses are read at once. 1 to 3 are read before 4, 5 and 6 at the end.
    recorded = [f"record e{number} on default" for number in range(5)]
    waited = [f"host waits for e{number}" for number in range(5)]
    assert calls == [*recorded[:3], *waited[:3], *recorded[3:], *waited[3:]]


@pytest.mark.parametrize(
    "needs", ['lr_policy: "plateau" gamma: 0.5 plateau_winsize: 2', "debug_info: true display: 1", "display: 1"]
)
def test_losses_that_are_needed_at_once(tmp_path: Path, needs: str) -> None:
    assert trained(tmp_path, True, needs)[2] == []


def test_a_callback_before_the_update_gets_each_loss(tmp_path: Path) -> None:
    with late_device() as cuda, Solver(small_solver(tmp_path)) as solver:
        seen: list[float] = []
        solver.runtime.updater.before_update.append(seen.append)
        solver.step(3)
        assert len(seen) == 3
        assert cuda.calls == []


def test_losses_that_nobody_shows_are_read_when_there_are_many(tmp_path: Path) -> None:
    with late_device() as cuda, Solver(small_solver(tmp_path, "display: 0")) as solver:
        for _ in range(MOST_LATE):
            solver.runtime.train()
        assert not any("waits" in call for call in cuda.calls)
        solver.runtime.train()
        assert [call for call in cuda.calls if "waits" in call] == ["host waits for e0"]


@pytest.mark.parametrize(
    "act",
    [
        lambda solver: solver.step(2),
        lambda solver: [solver.runtime.train(), solver.runtime.train(), solver.snapshot()],
        lambda solver: [solver.runtime.train(), solver.runtime.train(), solver.runtime.testing().__enter__()],
    ],
)
def test_a_loss_that_is_not_finite_ends_the_run_before_anything_is_written(
    summed: Path, act: Callable[[Solver], object]
) -> None:
    set_up(summed, [1.0, 1.0, 1.0, OVERFLOWING], 2)
    plan = read_plan("solver.prototxt", ["base_lr: 0 display: 0 snapshot_prefix: 'a'"])
    with (
        late_device(),
        Solver(plan) as solver,
        pytest.raises(DivergedError, match=r"^iteration 1: the loss is inf, and later .* display: 1 names the layer"),
    ):
        act(solver)
    assert not list(summed.glob("a_iter*"))


def test_a_displayed_iteration_still_names_the_layer_before_its_update(summed: Path) -> None:
    set_up(summed, [1.0, 1.0, 1.0, OVERFLOWING], 2)
    plan = read_plan("solver.prototxt", ["base_lr: 0 display: 1"])
    with late_device(), Solver(plan) as solver, pytest.raises(DivergedError, match='blob "loss" of layer "loss"'):
        solver.step(2)


def test_on_nan_go_on(summed: Path) -> None:
    set_up(summed, [1.0, 1.0, 1.0, OVERFLOWING], 2)
    plan = read_plan("solver.prototxt", ["base_lr: 0 display: 0 on_nan: GO_ON"])
    with late_device(), Solver(plan) as solver:
        solver.step(2)
        assert math.isinf(solver.loss)
