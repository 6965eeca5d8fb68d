"""Runs that lose ranks end as undisturbed ones: kills at named instructions, in tests and in snapshots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bpt.comm.base import Communicator
from bpt.errors import LostRankError, RunError
from bpt.execute.executor import Executor
from bpt.plan.resolve import read_plan
from bpt.runtime.runtime import Runtime
from bpt.solver import tester
from bpt.solver.solver import Solver
from tests.doubles.thread_ranks import Killed, run_ranks
from tests.solver.spread_runs import Saved, remove_snapshots, set_up, train

ALONE = "precision: FLOAT64 snapshot: 3"
COPIES = "parallel_param { fault_param { copies: 1 } }"


class Kill(NamedTuple):
    """A rank of the job dies when it comes to something in an iteration: an instruction's letter, test or snapshot."""

    rank: int
    iteration: int
    place: str


class Kills:
    """Those that are still to come."""

    def __init__(self) -> None:
        self.left: list[Kill] = []
        self._lock = threading.Lock()

    def come(self, runtime_world: Communicator, iteration: int, place: str) -> None:
        rank = runtime_world.world_ranks[runtime_world.rank]
        with self._lock:
            due = Kill(rank, iteration, place) in self.left
            if due:
                self.left.remove(Kill(rank, iteration, place))
        if due:
            raise Killed


@pytest.fixture
def kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kills]:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)
    kills = Kills()
    execute, test, snapshot = Executor._execute, tester.Tester.test, Runtime.snapshot

    def executing(self: Executor, instruction: Any) -> None:
        if self._status is not None:
            kills.come(self._status._world, self._iteration, instruction.letter)
        execute(self, instruction)

    def testing(self: tester.Tester, index: int, iteration: int) -> Any:
        world = self.stop.__self__.runtime.world  # type: ignore[attr-defined]
        kills.come(world, iteration, "test")
        found = test(self, index, iteration)
        kills.come(world, iteration, "tested")
        return found

    def writing(self: Runtime) -> str:
        kills.come(self.world, self.iteration, "snapshot")
        path = snapshot(self)
        kills.come(self.world, self.iteration, "written")
        return path

    monkeypatch.setattr(Executor, "_execute", executing)
    monkeypatch.setattr(tester.Tester, "test", testing)
    monkeypatch.setattr(Runtime, "snapshot", writing)
    yield kills
    assert not kills.left


def solve(ranks: int, *overrides: str) -> list[tuple[int, int]]:
    """Train on so many ranks that outlive each other; what each that is left comes to: its place, and iterations."""

    def run(world: Communicator) -> tuple[int, int]:
        plan = read_plan("solver.prototxt", [ALONE, *overrides])
        with Solver(plan, world=world.Dup()) as solver:
            solver.solve()
            return solver.runtime.world.rank, solver.iter

    return run_ranks(ranks, run, tolerant=True)


def check(kills: Kills, ranks: int, left: int, *overrides: str, alone: Sequence[str] = (), on: int = 1) -> None:
    """That what is left after the kills ends as an undisturbed run."""
    due, kills.left = kills.left, []
    train(on, ALONE, *alone)
    expected = {iteration: Saved.read(iteration) for iteration in (3, 6, 9)}
    remove_snapshots()
    kills.left = due
    assert solve(ranks, *overrides) == [(place, 9) for place in range(left)]
    for iteration, saved in expected.items():
        Saved.read(iteration).check(saved, 1e-5)


PLACES = ["F", "B", "X", "W", "U", "test", "tested", "snapshot", "written"]


def at(place: str) -> int:
    """An iteration that comes there."""
    return {"test": 4, "tested": 4, "snapshot": 6, "written": 6}.get(place, 5)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_wherever_a_rank_dies(kills: Kills, rank: int, place: str) -> None:
    kills.left = [Kill(rank, at(place), place)]
    check(kills, 3, 2)


@pytest.mark.parametrize("exchange", ["RING", "CGDP"])
@pytest.mark.parametrize("place", ["F", "X", "W", "U"])
def test_exchanges(kills: Kills, exchange: str, place: str) -> None:
    kills.left = [Kill(1, 5, place)]
    check(kills, 3, 2, f"parallel_param {{ exchange: {exchange} cgdp_param {{ chunk_size: 1 }} }}")


@pytest.mark.parametrize(("rank", "more"), [(1, ""), (0, COPIES)])
@pytest.mark.parametrize("place", ["C", "F", "W", "U", "test"])
def test_a_tree(kills: Kills, rank: int, more: str, place: str) -> None:
    """The root alone has the moments: what it takes with it comes from a copy."""
    kills.left = [Kill(rank, at(place), place)]
    check(kills, 3, 2, "parallel_param { exchange: TREE }", *([more] if more else []))


def test_two_at_once_and_two_in_turn(kills: Kills) -> None:
    kills.left = [Kill(0, 2, "B"), Kill(3, 2, "W"), Kill(1, 6, "snapshot"), Kill(4, 8, "F")]
    check(kills, 5, 1)


STAGES = "parallel_param { num_stages: 2 pipeline_param { micro_batches: 1 } }"
SHARDS = "parallel_param { num_shards: 2 }"
MASTER = "parallel_param { num_shards: 2 fc_param { scheme: MASTER_SLAVE } }"


@pytest.mark.parametrize("place", ["F", "W", "U", "test", "snapshot"])
@pytest.mark.parametrize(
    ("ranks", "arrangement"), [(2, STAGES), (2, SHARDS), (2, MASTER), (4, STAGES), (4, f"{SHARDS} {STAGES}")]
)
def test_what_only_one_rank_held(kills: Kills, ranks: int, arrangement: str, place: str) -> None:
    """Stages, shards, and 2 × 2: with copies of each rank's state."""
    kills.left = [Kill(1, at(place), place)]
    check(kills, ranks, ranks - 1, *arrangement.replace("} parallel", "}\nparallel").split("\n"), COPIES)


def test_copies_now_and_then(kills: Kills) -> None:
    """Up to two iterations are repeated."""
    kills.left = [Kill(0, 5, "W"), Kill(2, 8, "B")]
    interval = "parallel_param { fault_param { copies: 1 copy_interval: 3 } }"
    check(kills, 4, 2, STAGES, interval)


def test_what_nobody_else_has_ends_the_run(kills: Kills) -> None:
    kills.left = [Kill(1, 5, "F")]
    with pytest.raises(LostRankError, match=r"nobody else has: fault_param \{ copies: 1 \} keeps a copy"):
        solve(2, STAGES)


def test_too_few_ranks(kills: Kills) -> None:
    kills.left = [Kill(1, 5, "F"), Kill(2, 7, "F")]
    few = "parallel_param { fault_param { min_ranks: 3 } }"
    with pytest.raises(RunError, match=r"2 ranks are left, fewer than min_ranks: 3; wrote small_iter_7.solverstate"):
        solve(4, few)


def test_a_run_that_is_to_stop(kills: Kills) -> None:
    kills.left = [Kill(1, 5, "F")]
    with pytest.raises(LostRankError):
        solve(3, "parallel_param { fault_param { on_loss: STOP } }")


def test_it_says_who_was_lost(kills: Kills, caplog: pytest.LogCaptureFixture) -> None:
    kills.left = [Kill(0, 5, "F")]
    with caplog.at_level(logging.INFO, "bpt"):
        solve(3)
    [lost] = [message for message in caplog.messages if message.startswith("Lost: ")]
    assert lost.startswith("Lost: rank 0 (host ") and lost.endswith(
        "; going on after iteration 5 on 2 ranks = 2 replicas"
    )
    assert any(message.startswith("Healed: ") for message in caplog.messages)
