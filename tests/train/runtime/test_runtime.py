"""A run's state outlives what it runs on: copied, compared, gathered, divided, bound again, here or on other ranks."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.base.errors import RunError, UserError
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.parallel.exchange.allreduce import Allreduce
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.runtime.binding import bind
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.parameter_sync import ParameterSync
from bpt.train.runtime.runtime import Runtime
from bpt.train.state.train_state import TrainState
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks
from tests.support.open_files import prefetchers
from tests.support.spread_runs import SOLVER

pytestmark = pytest.mark.usefixtures("folder")

ITERATIONS = 6


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
            runtime.parallel.parameters.before_test(runtime.net, runtime.exchange)
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
            found = runtime.tuner.chunks.lengths
        with bind(plan_of(more), state, comm) as runtime:
            assert runtime.tuner.settled and runtime.iteration == 0
            runtime.run(1)
            return found, state.tuned["chunks"], runtime.tuner.chunks.lengths

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
            chunks = runtime.tuner.chunks
            return chunks.settled, chunks.lengths, len(runtime.nets.train.operator.segments)

    with caplog.at_level(logging.INFO, "bpt"):
        assert run_ranks(2, run) == [(True, (1, 2), 2)] * 2
    assert "Chunks: 1x1 1x2, as settled before" in caplog.messages


def test_the_world_outlives_the_run_and_does_not_keep_its_net() -> None:
    """So did names of segments on the event bus."""
    world = SerialCommunicator()
    runtime = bind(plan_of(), world=world)
    runtime.run(1)
    runtime.close()
    net = weakref.ref(runtime.net)
    del runtime
    gc.collect()
    assert net() is None


def test_a_run_that_is_dropped_ends_its_threads() -> None:
    """A cache of shares kept it alive, and with it all that it had."""
    before = prefetchers()
    runtime = bind(plan_of())
    runtime.run(1)
    assert prefetchers() > before
    del runtime
    gc.collect()
    assert prefetchers() == before


def test_closing_twice_is_closing_once() -> None:
    runtime = bind(plan_of())
    runtime.close()
    runtime.close()


@pytest.mark.parametrize(
    ("part", "step"), [(Parallel, "exchange"), (Parallel, "status"), (ParameterSync, "shard_info")]
)
def test_a_bind_that_fails_closes_what_it_has_opened(part: type, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it has come to; and with nothing that other ranks would have to take part in."""
    closed = []
    close = Parallel.close
    monkeypatch.setattr(Parallel, "close", lambda self, failed: (closed.append(failed), close(self, failed)))

    def fail(*arguments: object) -> None:
        raise RunError("no memory")

    monkeypatch.setattr(part, step, fail)
    with pytest.raises(RunError, match="no memory"):
        bind(plan_of())
    assert closed == [True]


FREED = LAYOUTS | {
    "chunks": (2, "parallel_param { exchange: CGDP cgdp_param { chunking: MODEL } }"),
    "late": (2, "parallel_param { num_stages: 2 pipeline_param { schedule: DELAYED } }"),
}


@pytest.mark.parametrize("layout", FREED)
def test_all_communicators_are_given_back(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of MPI's there are not many, and each bind took ten for ever. Chunks are being measured when the run ends."""
    ranks, more = FREED[layout]
    if layout == "late":
        Path("solver.prototxt").write_text(SOLVER.replace("clip_gradients: 0.5", "").replace("iter_size: 2", ""))
    made: list[Communicator] = []
    freed: list[Communicator] = []
    adopt, free = ThreadCommunicator._adopt, ThreadCommunicator.Free

    def adopting(self: Communicator, comm: ThreadCommunicator) -> ThreadCommunicator:
        made.append(comm)
        return adopt(self, comm)

    def freeing(self: ThreadCommunicator) -> None:
        freed.append(self)
        free(self)

    monkeypatch.setattr(ThreadCommunicator, "_adopt", adopting)
    monkeypatch.setattr(ThreadCommunicator, "Free", freeing)

    def run(comm: Communicator) -> None:
        with bind(plan_of(more), world=comm) as runtime:
            runtime.run(3)
        assert comm.events.before_end is None
        assert not comm.events._sinks

    run_ranks(ranks, run)
    assert made and {id(comm) for comm in made} == {id(comm) for comm in freed}
    assert len(freed) == len(made)


def test_after_a_failure_nobody_waits_for_the_others() -> None:
    def run(comm: Communicator) -> None:
        runtime = bind(plan_of(), world=comm)
        runtime.run(1)
        if comm.rank:
            runtime.close(failed=True)

    run_ranks(2, run)


def test_who_goes_on_from_a_state_draws_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are the state's; of large nets drawing takes most of the time in which a run heals."""
    state = trained(bind(plan_of()), 2)
    monkeypatch.setattr("bpt.nn.parameter_maker.fill", lambda *drawn: pytest.fail("weights were drawn"))
    with bind(plan_of(), state) as runtime:
        assert not list(differences(runtime.state(), state))
