"""The algorithms of kernels: when they are tried, how ranks agree on them, and that a resumed run has the same ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import algorithm_trials
from bpt.engine.algorithm_cache import AlgorithmCache, KernelTimes
from bpt.engine.measured_choice import WARM_UP
from bpt.engine.operator import Operator
from bpt.nn.kernels.algorithm import Algorithm, KernelRole
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.runtime import algorithm_setting as module
from bpt.train.runtime.algorithm_setting import MARGIN, AlgorithmsChoice, AlgorithmSetting
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.runtime.tuned_settings import MemoryFormatSetting
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.kernel_nets import CONV, IP, NET, times
from tests.support.small_solver import small_solver

AUTO, FIRST = pb.SolverParameter.AUTO, pb.SolverParameter.CONTIGUOUS
FORWARD, BY_DATA, BY_WEIGHTS = KernelRole
PATCHES = (CONV, int(FORWARD), int(Algorithm.PATCHES))
COMPARED = 2 * (WARM_UP + AlgorithmsChoice.trials)  # iterations
SOLVER = 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 max_iter: 4 random_seed: 1\n'


def run_plan(folder: Path, *overrides: str) -> RunPlan:
    return small_solver(folder, *overrides, net=NET, text=SOLVER)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return run_plan(tmp_path)


def trial_of(monkeypatch: pytest.MonkeyPatch, *of_ranks: dict[int, KernelTimes]) -> list[int]:
    """Let the trials of the ranks find these times; their calls are noted."""
    calls: list[int] = []
    left = list(of_ranks)

    def found(
        net: Net, engine: int, known: dict[str, KernelTimes], limit: float, micro_batches: int
    ) -> dict[int, KernelTimes]:
        mine = left.pop(0)
        calls.append(engine)
        known.update({f"layer {index}": each for index, each in mine.items()})
        return mine

    monkeypatch.setattr(module, "measure", found)
    return calls


def setting(plan: RunPlan, world: Communicator | None = None) -> tuple[AlgorithmSetting, Operator]:
    world = world or SerialCommunicator()
    operator = Operator(Net(build_graph_of(plan.train)))
    return AlgorithmSetting(plan, operator, MemoryFormatSetting(plan.engine, [operator], world), world), operator


def in_use(operator: Operator, layer: int = CONV) -> dict[KernelRole, Algorithm]:
    return dict(operator.net.layer(operator.net.graph.nodes[layer]).algorithms)


def finish(made: AlgorithmSetting, operator: Operator, seconds: Callable[[bool], float]) -> list[bool]:
    """Record iterations until the choice is final; whether each ran by the fastest algorithms."""
    used = []
    while not made.settled:
        used.append(bool(in_use(operator)))
        made.record(seconds(used[-1]))
    return used


def test_the_fastest_if_whole_iterations_are_faster_too(
    plan: RunPlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trial_of(monkeypatch, {CONV: times(0.002, 0.001)})
    made, operator = setting(plan)
    assert not made.settled
    assert made.state() == ()
    with caplog.at_level(logging.INFO, "bpt"):
        used = finish(made, operator, lambda fastest: 0.01 if fastest else 0.011)
    assert used[0] is False  # the iteration before the trials
    assert sorted(used[1:]) == [False] * (COMPARED // 2) + [True] * (COMPARED // 2)
    assert in_use(operator) == {FORWARD: Algorithm.PATCHES}
    assert made.state() == PATCHES
    assert caplog.messages == ["Algorithms: conv forward PATCHES (1 ms, TORCH 2 ms)"]
    assert AlgorithmCache.of_user().times == {f"layer {CONV}": times(0.002, 0.001)}


@pytest.mark.parametrize("fraction", [1.2, 1.01 * MARGIN])
def test_torchs_if_whole_iterations_are_not_faster(
    fraction: float, plan: RunPlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trial_of(monkeypatch, {CONV: times(0.002, 0.001)})
    made, operator = setting(plan)
    with caplog.at_level(logging.INFO, "bpt"):
        finish(made, operator, lambda fastest: 0.01 * fraction if fastest else 0.01)
    assert in_use(operator) == {}
    assert made.state() == ()
    (message,) = caplog.messages
    assert message.startswith("Algorithms: TORCH (TORCH 10 ms, FASTEST ")
    assert message.endswith(" ms an iteration), not conv forward PATCHES (1 ms, TORCH 2 ms)")
    assert AlgorithmCache.of_user().times == {f"layer {CONV}": times(0.002, 0.001)}  # for the next comparison


def test_too_little_for_an_iteration(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 ms of 51 ms is less than 2 %."""
    trial_of(monkeypatch, {CONV: times(0.002, 0.001)}, {CONV: times(0.002, 0.001)})
    made, operator = setting(plan)
    assert made.record(0.051)
    assert in_use(operator) == {}
    made, operator = setting(plan)
    assert not made.record(0.049)


def test_nothing_faster_takes_one_iteration(
    plan: RunPlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trial_of(monkeypatch, {CONV: times(0.002, 0.002)})
    made, operator = setting(plan)
    with caplog.at_level(logging.INFO, "bpt"):
        assert made.record(0.01)
    assert made.settled
    assert in_use(operator) == {}
    assert caplog.messages == ["Algorithms: TORCH for all kernels, since no other is clearly faster"]
    assert AlgorithmCache.of_user().times == {f"layer {CONV}": times(0.002, 0.002)}


def test_another_run_needs_no_trials(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm_trials, "fastest", lambda kernels: dict.fromkeys(kernels, 0.001))
    setting(plan)[0].record(0.01)
    known = AlgorithmCache.of_user().times
    assert len(known) == 2

    def never(*_: object) -> None:
        raise AssertionError("all times are known")

    monkeypatch.setattr(algorithm_trials, "fastest", never)
    setting(plan)[0].record(0.01)
    assert AlgorithmCache.of_user().times == known


@pytest.mark.parametrize("override", ["engine: CONTIGUOUS", "engine: CHANNELS_LAST"])
def test_an_engine_that_is_asked_for_tries_nothing(override: str, tmp_path: Path) -> None:
    made, _ = setting(run_plan(tmp_path, override))
    assert made.settled
    made.load(PATCHES)
    assert made.state() == ()


def test_where_nothing_is_tried(tmp_path: Path) -> None:
    assert setting(run_plan(tmp_path, "parallel_param { inner_param { engine: TASK_DAG } }"))[0].settled
    small = small_solver(tmp_path, text=SOLVER)  # no layer is worth it
    assert setting(small)[0].settled


def test_ranks_choose_alike(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATCHES is faster for "conv" on both ranks, for "ip" on one only; iterations of rank 1 are the slow ones."""
    trial_of(
        monkeypatch,
        {CONV: times(0.002, 0.001), IP: times(0.002, 0.001)},
        {CONV: times(0.003, 0.001), IP: times(0.002, 0.003)},
    )

    def run(comm: Communicator) -> tuple[list[bool], dict[Any, Any], tuple[int, ...]]:
        made, operator = setting(plan, comm)
        used = finish(made, operator, lambda fastest: (0.03 if fastest else 0.04) if comm.rank else 0.02)
        return used, in_use(operator), made.state()

    first, second = run_ranks(2, run)
    assert first == second
    assert first[1:] == ({FORWARD: Algorithm.PATCHES}, PATCHES)


def test_a_snapshot_ends_the_trials(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    trial_of(monkeypatch, {CONV: times(0.002, 0.001)})
    made, operator = setting(plan)
    for _ in range(1 + WARM_UP + 1):
        made.record(0.01)
    assert in_use(operator)  # being compared
    made.settle()
    assert made.settled
    assert in_use(operator) == {}
    made.settle()
    assert made.state() == ()


def test_a_state_without_algorithms_has_torchs(plan: RunPlan) -> None:
    world = SerialCommunicator()
    operator = Operator(Net(build_graph_of(plan.train)))
    memory_format = MemoryFormatSetting(plan.engine, [operator], world)
    made = AlgorithmSetting(plan, operator, memory_format, world)
    memory_format.load((FIRST,))
    assert made.settled
    assert made.state() == ()
    made.load(PATCHES)  # those of the same state, if it has some
    assert in_use(operator) == {FORWARD: Algorithm.PATCHES}
    made.load(())
    assert in_use(operator) == {FORWARD: Algorithm.PATCHES}  # a final choice stays


@pytest.mark.parametrize("unknown", [(99, 0, 2), (0, 0, 2), (CONV, 7, 2), (CONV, 0, 99)])
def test_what_a_net_does_not_know(unknown: tuple[int, ...], plan: RunPlan, caplog: pytest.LogCaptureFixture) -> None:
    made, operator = setting(plan)
    with caplog.at_level(logging.WARNING, "bpt"):
        made.load((*unknown, *PATCHES))
    assert in_use(operator) == {FORWARD: Algorithm.PATCHES}
    assert len(caplog.messages) == 1


def by_patches(plan: RunPlan) -> Solver:
    """A run that has chosen PATCHES for "conv"."""
    solver = Solver(plan)
    runtime = solver.runtime
    tuned = {"engine": (FIRST,), "algorithms": (*PATCHES, CONV, int(BY_WEIGHTS), int(Algorithm.OTHER_FORMAT))}
    runtime.load(replace(runtime.state(), tuned=tuned))
    return solver


def weights(solver: Solver) -> list[torch.Tensor]:
    return [value.detach().clone() for value in solver.net.parameters()]


def test_a_resumed_run_is_equal_bit_for_bit(plan: RunPlan) -> None:
    whole = by_patches(plan)
    whole.step(2)
    path = whole.runtime.snapshot()
    whole.step(2)
    resumed = Solver(plan, TrainOptions(resume=path))
    assert resumed.runtime.state().tuned["algorithms"] == whole.runtime.state().tuned["algorithms"]
    assert in_use(resumed.runtime.nets.train.operator) == {
        FORWARD: Algorithm.PATCHES, BY_WEIGHTS: Algorithm.OTHER_FORMAT
    }  # fmt: skip
    resumed.step(2)
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))
    whole.close()
    resumed.close()


def test_training_by_other_algorithms_is_training_by_torchs_up_to_rounding(plan: RunPlan) -> None:
    ours, plain = by_patches(plan), Solver(replace(plan, engine=FIRST))
    for solver in (ours, plain):
        solver.step(4)
    for a, b in zip(weights(ours), weights(plain), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    ours.close()
    plain.close()


def test_a_worker_of_the_outer_layer_tries_nothing(plan: RunPlan) -> None:
    """A replay of the run knows its engines, and not its algorithms."""
    solver = Solver(plan, TrainOptions(tries_algorithms=False))
    assert solver.runtime.tuner.algorithms is None
    solver.close()


def test_no_recorded_pass_keeps_the_algorithms_before(plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    made, operator = setting(plan)
    resets: list[bool] = []
    monkeypatch.setattr(operator.compute, "reset", lambda: resets.append(bool(in_use(operator))))
    made.load(PATCHES)
    assert resets == [True]
