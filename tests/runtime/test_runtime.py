"""A run's state outlives what it runs on: copied, compared, gathered, divided, bound again, here or on other ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bpt.comm.base import Communicator
from bpt.plan.resolve import read_plan
from bpt.plan.spec import RunPlan
from bpt.runtime.runtime import Runtime, bind
from bpt.state.train_state import TrainState
from tests.doubles.thread_ranks import run_ranks
from tests.solver.spread_runs import set_up

ITERATIONS = 6


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(tmp_path)
    monkeypatch.chdir(tmp_path)


def plan_of(more: str = "") -> RunPlan:
    return read_plan("solver.prototxt", [f"precision: FLOAT64 {more}"]).training_only()


def trained(runtime: Runtime, iterations: int) -> TrainState:
    with runtime:
        runtime.run(iterations)
        return runtime.state().copy()


def whole_after(more: str, ranks: int, iterations: int, state: TrainState | None = None) -> TrainState:
    """The whole state of a run on ``ranks`` after so many iterations, from a state."""

    def run(comm: Communicator) -> TrainState | None:
        with bind(plan_of(more), state, comm) as runtime:
            runtime.run(iterations)
            runtime.parallel.before_test(runtime.net, runtime.exchange)
            graph = runtime.net.graph
            grid = runtime.parallel.grid
            return runtime.state().gathered(graph, grid.in_replica, runtime.parallel.parts(graph))

    found = run_ranks(ranks, run)[0]
    assert found is not None
    return found


def test_a_copy_goes_on_bit_by_bit_in_another_runtime() -> None:
    straight = trained(bind(plan_of()), ITERATIONS)
    half = trained(bind(plan_of()), 2)
    resumed = trained(bind(plan_of(), half), ITERATIONS - 2)
    assert list(straight.differences(resumed)) == []
    assert resumed.iteration == ITERATIONS
    assert set(straight.positions) == {("train", "data")}


def test_going_back_is_as_if_nothing_had_been() -> None:
    with bind(plan_of()) as runtime:
        runtime.run(2)
        before = runtime.state().copy()
        runtime.run(3)
        changed = {each.split(" ")[0] for each in before.differences(runtime.state())}
        assert changed >= {"iteration", "weights", "moment"}
        runtime.load(before)
        assert list(before.differences(runtime.state())) == []
        runtime.warm_up()
        assert list(before.differences(runtime.state())) == []


LAYOUTS = {
    "replicas": (3, ""),
    "peers": (2, "parallel_param { num_shards: 2 }"),
    "slaves": (3, "parallel_param { num_shards: 3 fc_param { scheme: MASTER_SLAVE } }"),
    "stages": (2, "parallel_param { num_stages: 2 pipeline_param { schedule: SEQUENTIAL micro_batches: 1 } }"),
    "stages of peers": (
        4,
        "parallel_param { num_stages: 2 num_shards: 2 pipeline_param { schedule: SEQUENTIAL micro_batches: 1 } }",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_moves_to_other_ranks_and_back(layout: str) -> None:
    ranks, more = LAYOUTS[layout]
    straight = whole_after("", 1, ITERATIONS)
    half = whole_after("", 1, 2)
    there = whole_after(more, ranks, 2, half)
    back = whole_after("", 1, ITERATIONS - 4, there)
    # The tuned layout is that of each place; losses are sums in other orders.
    assert list(replace(straight, losses=()).differences(replace(back, losses=()), 1e-9)) == []
    assert straight.losses == pytest.approx(back.losses)


def test_what_differs_is_named() -> None:
    state = trained(bind(plan_of()), 1)
    weights = dict(state.weights)
    weights["ip", 0] = weights["ip", 0] + 1
    other = replace(state, iteration=7, weights=weights, extras={"residuals": {"ip/0": torch.zeros(2)}})
    assert sorted(state.differences(other)) == [
        "iteration (1, not 7)", "residuals: ip/0 is in one of them only", "weights of ip/0",
    ]  # fmt: skip
    assert list(state.differences(replace(state, weights=weights), 1e6)) == []
