"""A run's state outlives what it runs on: copied, compared, gathered, divided, bound again, here or on other ranks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.comm.base import Communicator
from bpt.errors import UserError
from bpt.exchange.allreduce import Allreduce
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


def differences(ours: TrainState, theirs: TrainState, tolerance: float = 0.0) -> Iterator[str]:
    """What differs; of tensors, by more than ``tolerance`` relative to their largest element."""
    for name in ("iteration", "seed", "positions", "losses", "tuned"):
        if getattr(ours, name) != getattr(theirs, name):
            yield name
    for name in ("weights", "moments"):
        own, others = getattr(ours, name), getattr(theirs, name)
        assert own.keys() == others.keys()
        for blob in own:
            pairs = [(own[blob], others[blob])] if name == "weights" else zip(own[blob], others[blob], strict=True)
            if any((a - b).abs().max() > tolerance * a.abs().max() for a, b in pairs):
                yield f"{name} of {blob}"


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
            parts = runtime.parallel.parts(graph)
            return runtime.state().gathered(graph, grid.in_replica, parts, runtime.plan.precision.master)

    found = run_ranks(ranks, run)[0]
    assert found is not None
    return found


def test_a_copy_goes_on_bit_by_bit_in_another_runtime() -> None:
    straight = trained(bind(plan_of()), ITERATIONS)
    half = trained(bind(plan_of()), 2)
    resumed = trained(bind(plan_of(), half), ITERATIONS - 2)
    assert list(differences(straight, resumed)) == []
    assert resumed.iteration == ITERATIONS
    assert set(straight.positions) == {("train", "data")}


def test_going_back_is_as_if_nothing_had_been() -> None:
    with bind(plan_of()) as runtime:
        runtime.run(2)
        before = runtime.state().copy()
        runtime.run(3)
        changed = {each.split(" ")[0] for each in differences(before, runtime.state())}
        assert changed >= {"iteration", "weights", "moments"}
        runtime.load(before)
        assert list(differences(before, runtime.state())) == []
        runtime.warm_up()
        assert list(differences(before, runtime.state())) == []


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
    assert list(differences(replace(straight, losses=()), replace(back, losses=()), 1e-9)) == []
    assert straight.losses == pytest.approx(back.losses)


def test_what_a_state_does_not_name_begins_anew() -> None:
    with bind(plan_of()) as runtime:
        runtime.run(2)
        start = replace(runtime.state().copy(), moments={}, positions={}, losses=())
        runtime.run(1)
        runtime.load(start)
        after = runtime.state()
        assert all(not moment.any() for moments in after.moments.values() for moment in moments)
        assert after.positions == {("train", "data"): 0}
        assert after.losses == ()
        assert after.iteration == 2


def test_a_state_of_another_seed_is_bound_but_not_loaded() -> None:
    state = replace(trained(bind(plan_of()), 1), seed=8)
    with bind(plan_of()) as runtime:
        with pytest.raises(UserError, match="the state is of random_seed 8, this run of 3"):
            runtime.load(state)
        assert runtime.iteration == 0
    with bind(plan_of(), state) as runtime:
        assert (runtime.seed, runtime.iteration) == (8, 1)


def test_an_exchange_has_a_state_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank's goes on where it was, in the same runtime and in another; without one, it starts anew."""

    def load(self: Allreduce, state: Mapping[str, Tensor]) -> None:
        self.waits = state.get("waits", torch.zeros(1)).clone()  # type: ignore[attr-defined]

    def wait(self: Allreduce) -> None:
        self.waits = self.waits + 1  # type: ignore[attr-defined]
        plainly(self)

    plainly = Allreduce.wait
    monkeypatch.setattr(Allreduce, "waits", torch.zeros(1), raising=False)
    monkeypatch.setattr(Allreduce, "state", lambda self: {"waits": self.waits})
    monkeypatch.setattr(Allreduce, "load", load)
    monkeypatch.setattr(Allreduce, "wait", wait)

    def waits(runtime: Runtime) -> float:
        return runtime.state().extras["Allreduce"]["waits"].item()

    def run(comm: Communicator) -> list[float]:
        with bind(plan_of(), None, comm) as runtime:
            runtime.load(runtime.state())
            runtime.run(2)
            state = runtime.state().copy()
            seen = [waits(runtime)]
            runtime.warm_up()
            seen.append(waits(runtime))
            runtime.load(replace(state, extras={}))
            seen.append(waits(runtime))
        with bind(plan_of(), state, comm) as runtime:
            return [*seen, waits(runtime)]

    assert run_ranks(2, run) == [[2, 2, 0, 2]] * 2


@pytest.mark.parametrize("chunking", ["UNIFORM", "MODEL"])
def test_chunks_that_were_settled_are_not_searched_again(chunking: str) -> None:
    more = f"parallel_param {{ exchange: CGDP cgdp_param {{ interval: 1 chunking: {chunking} }} }}"

    def run(comm: Communicator) -> tuple[tuple[int, ...], ...]:
        with bind(plan_of(more), None, comm) as runtime:
            assert "chunks" not in runtime.state().tuned
            runtime.warm_up()
            state = runtime.state().copy()
            found = runtime.chunks.lengths
        with bind(plan_of(more), state, comm) as runtime:
            assert runtime.tuner.settled and runtime.iteration == 0
            runtime.run(1)
            return found, state.tuned["chunks"], runtime.chunks.lengths

    for found, *others in run_ranks(2, run):
        assert sum(found) == 3  # layers with weights
        assert others == [found] * 2


def test_chunks_of_another_run_are_taken_over_amid_a_search(caplog: pytest.LogCaptureFixture) -> None:
    more = "parallel_param { exchange: CGDP cgdp_param { interval: 1 chunking: MODEL } }"

    def run(comm: Communicator) -> tuple[bool, tuple[int, ...], int]:
        with bind(plan_of(more), None, comm) as runtime:
            runtime.run(4)  # the calibration is under way
            runtime.load(replace(runtime.state(), tuned={"chunks": (1, 2)}))
            runtime.run(2)
            chunks = runtime.chunks
            return chunks.settled, chunks.lengths, len(runtime.train.operator.segments)

    with caplog.at_level(logging.INFO, "bpt"):
        assert run_ranks(2, run) == [(True, (1, 2), 2)] * 2
    assert "Chunks: 1x1 1x2, as settled before" in caplog.messages
