"""Runs that lose ranks end as undisturbed ones: kills at named instructions, in tests and in snapshots."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from bpt.base.errors import LostRankError, PrototxtError, RunError
from bpt.base.signals import SignalAction, SignalActions
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.chaos import losses
from tests.chaos.losses import CASES, COPIES, SHARDS, STAGES, STATIC, Case, Kill, Kills, injected, solve, undisturbed
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.marks import slow
from tests.support.spread_runs import Saved, read_state, set_up, train, write_speeds


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)


@cache
def expected() -> dict[int, Saved]:
    """Of the undisturbed run, which is the same in any folder."""
    return undisturbed()


def check(kills: list[Kill], ranks: int, *overrides: str, spares: int = 0, hosts: Sequence[str] | None = None) -> None:
    losses.check(kills, expected(), ranks, *overrides, spares=spares, hosts=hosts)


SELDOM = [pytest.param(place, marks=pytest.mark.slow) for place in ("B", "tested", "written")]
PLACES = ["F", "X", "W", "U", "test", "snapshot", *SELDOM]


def at(place: str) -> int:
    """An iteration that comes there."""
    return {"test": 4, "tested": 4, "snapshot": 6, "written": 6}.get(place, 5)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rank", [0, slow(1), slow(2)])
def test_wherever_a_rank_dies(rank: int, place: str) -> None:
    check([Kill(rank, at(place), place)], 3)


@pytest.mark.parametrize("exchange", ["RING", "CGDP"])
@pytest.mark.parametrize("place", [pytest.param("F", marks=pytest.mark.slow), "X", "W", "U"])
def test_exchanges(exchange: str, place: str) -> None:
    check([Kill(1, 5, place)], 3, f"parallel_param {{ exchange: {exchange} cgdp_param {{ chunk_size: 1 }} }}")


@pytest.mark.parametrize("rank", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_hosts_of_several_ranks(rank: int) -> None:
    """The one that sums for its host, and another one."""
    check([Kill(rank, 5, "X")], 4, hosts=["north", "north", "south", "south"])


@pytest.mark.parametrize(("rank", "more"), [slow(1, ""), (0, COPIES)])
@pytest.mark.parametrize(
    "place", ["C", "W", "U", *(pytest.param(place, marks=pytest.mark.slow) for place in ("F", "test"))]
)
def test_a_tree(rank: int, more: str, place: str) -> None:
    """The root alone has the moments: what it takes with it comes from a copy."""
    check([Kill(rank, at(place), place)], 3, "parallel_param { exchange: TREE }", *([more] if more else []))


def test_two_at_once_and_two_in_turn() -> None:
    check([Kill(0, 2, "B"), Kill(3, 2, "W"), Kill(1, 6, "snapshot"), Kill(4, 8, "F")], 5)


MASTER = "parallel_param { num_shards: 2 fc_param { scheme: MASTER_SLAVE } }"


@pytest.mark.parametrize("place", [slow("F"), slow("W"), "U", slow("snapshot")])
@pytest.mark.parametrize(
    ("ranks", "arrangement"),
    [(2, [STAGES]), (2, [SHARDS]), (2, [MASTER]), (4, [STAGES]), (4, [SHARDS, STAGES])],
    ids=["stages", "shards", "slaves", "replicas of stages", "2 x 2"],
)
def test_what_only_one_rank_held(ranks: int, arrangement: list[str], place: str) -> None:
    """With copies of each rank's state."""
    check([Kill(1, at(place), place)], ranks, *arrangement, COPIES)


def test_shares_of_unlike_ranks() -> None:
    """Those that are left have their own speeds still."""
    write_speeds(0.1, 0.2, 0.3, 0.1)
    check([Kill(1, 2, "F"), Kill(3, 5, "W")], 4, STATIC)


@pytest.mark.parametrize(("rank", "ranks", "plan"), [(1, 2, [STAGES]), (0, 3, ["parallel_param { exchange: TREE }"])])
def test_a_test_that_a_copy_does_not_know_of_comes_again(rank: int, ranks: int, plan: list[str]) -> None:
    """A copy is older than the test of its iteration, which was not done again once, though its data went back."""
    check([Kill(rank, 4, "W")], ranks, *plan, COPIES)


def test_old_snapshots_go_after_a_loss_as_before(caplog: pytest.LogCaptureFixture) -> None:
    """What a run had written until then was forgotten once, and the rest of it was taken for another run's."""
    with injected(Kills([Kill(0, 5, "F"), Kill(1, 8, "F")])):
        solve(3, "snapshot: 2 max_snapshots: 2 test_interval: 100 test_initialization: false")
    left = sorted(Path().glob("small_iter_*.solverstate"))
    assert [path.name for path in left] == ["small_iter_8.solverstate", "small_iter_9.solverstate"]
    assert len({read_state(iteration).run for iteration in (8, 9)}) == 1


def test_copies_now_and_then() -> None:
    """Up to two iterations are repeated."""
    interval = "parallel_param { fault_param { copies: 1 copy_interval: 3 } }"
    check([Kill(0, 5, "W"), Kill(2, 8, "B")], 4, STAGES, interval)


def spare(ranks: int) -> str:
    return f"parallel_param {{ fault_param {{ spares: {ranks} }} }}"


@pytest.mark.parametrize(
    "place", ["X", "U", "test", *(pytest.param(place, marks=pytest.mark.slow) for place in ("F", "W", "snapshot"))]
)
def test_a_spare_takes_the_place_of_a_lost_rank(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """The grid stays: two replicas of two stages. Who takes over repeats what was under way, as the others do."""
    with caplog.at_level(logging.WARNING, "bpt"):
        check([Kill(1, at(place), place)], 5, STAGES, COPIES, spare(1))
    assert "on 4 ranks = 2 replicas × 2 stages" in caplog.text


def test_spares_come_one_by_one_and_the_first_rank_may_be_lost(caplog: pytest.LogCaptureFixture) -> None:
    """3 train and 2 wait; then rank 3 trains, and is lost as well; rank 4 comes to be one of two."""
    with caplog.at_level(logging.WARNING, "bpt"):
        check([Kill(0, 2, "B"), Kill(3, 4, "W"), Kill(1, 6, "snapshot"), Kill(2, 8, "F")], 5, spare(2))
    told = [message.rsplit(" on ", 1)[1] for message in caplog.messages if message.startswith("Lost")]
    assert told == [
        "3 ranks = 3 replicas; 1 spare", "3 ranks = 3 replicas", "2 ranks = 2 replicas", "1 rank = 1 replica"
    ]  # fmt: skip


@pytest.mark.parametrize("spares", [1, slow(2)])
def test_spares_that_are_left_alone_do_not_take_the_run_for_done(spares: int) -> None:
    """They agreed with each other that all was well, once, and the job ended with status 0 and no snapshot."""
    ranks = 2 + spares
    with (
        injected(Kills([Kill(0, 5, "F"), Kill(1, 5, "F")])),
        pytest.raises(LostRankError, match="no other rank has what it held"),
    ):
        solve(ranks, spare(spares))


def test_spares_that_nobody_needs_leave_with_the_others() -> None:
    check([], 4, spare(2), spares=2)


def test_what_does_not_fill_a_replica_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Of 2 × 2 ranks and a spare one two are lost: there are two stages still, and one rank waits."""
    with caplog.at_level(logging.WARNING, "bpt"):
        check([Kill(1, 5, "F"), Kill(2, 5, "F")], 5, STAGES, COPIES, spare(1), spares=1)
    assert "on 2 ranks = 1 replica × 2 stages; 1 spare" in caplog.text


def test_four_stages_become_three(caplog: pytest.LogCaptureFixture) -> None:
    """Not three replicas, each with the whole net, as once: a rank may not have room for that."""
    with caplog.at_level(logging.WARNING, "bpt"):
        check([Kill(1, 5, "F")], 4, "parallel_param { num_stages: 4 pipeline_param { micro_batches: 1 } }", COPIES)
    assert "on 3 ranks = 1 replica × 3 stages" in caplog.text


def test_a_run_at_its_end_keeps_no_spare_waiting() -> None:
    def again(world: Communicator) -> int:
        with Solver(
            read_plan("solver.prototxt", [losses.ALONE, spare(1)]), TrainOptions(resume="auto"), world=world
        ) as solver:
            solver.solve()
            return solver.iter

    train(1, losses.ALONE)
    assert run_ranks(3, again, tolerant=True) == [9, 9, 0]


@pytest.mark.parametrize(
    ("ranks", "spares", "tolerant", "told"),
    [(4, 1, False, "the job ends with the first rank that is lost; start it with mpirun --with-ft ulfm"),
     (3, 2, True, "spares: 2 of 3 ranks leaves 1 to train, and at least 2 must"),
     (2, 3, True, "spares: 3 of 2 ranks leaves 0 to train")],
)  # fmt: skip
def test_spares_for_nothing_are_refused(ranks: int, spares: int, tolerant: bool, told: str) -> None:
    def run(world: Communicator) -> None:
        Solver(read_plan("solver.prototxt", [spare(spares)]), world=world)

    with pytest.raises(PrototxtError, match=told):
        run_ranks(ranks, run, tolerant=tolerant)


def test_what_nobody_else_has_ends_the_run() -> None:
    with (
        injected(Kills([Kill(1, 5, "F")])),
        pytest.raises(LostRankError, match=r"no other rank has what it held: fault_param \{ copies: 1 \} keeps a copy"),
    ):
        solve(2, STAGES)


def test_a_rank_that_is_lost_with_its_copy_ends_the_run() -> None:
    """On one host the next rank has the copy: 1 has that of 0, which is the only one of its stage and shard."""
    with (
        injected(Kills([Kill(0, 5, "F"), Kill(1, 5, "F")])),
        pytest.raises(LostRankError, match="what it held: the rank with its copy is lost, too; --snapshot auto"),
    ):
        solve(4, SHARDS, STAGES, COPIES)


def test_too_few_ranks() -> None:
    few = "parallel_param { fault_param { min_ranks: 3 } }"
    told = r"^2 ranks are left, fewer than min_ranks: 3; wrote small_iter_7.solverstate$"
    with injected(Kills([Kill(1, 5, "F"), Kill(2, 7, "F")])), pytest.raises(RunError, match=told):
        solve(4, few)


def test_a_run_that_is_to_stop() -> None:
    with injected(Kills([Kill(1, 5, "F")])), pytest.raises(LostRankError):
        solve(3, "parallel_param { fault_param { on_loss: STOP } }")


def test_it_says_who_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bpt"), injected(Kills([Kill(0, 5, "F")])):
        solve(3)
    [lost] = [message for message in caplog.messages if message.startswith("Lost: ")]
    assert lost.startswith("Lost: rank 0 (host ") and lost.endswith(
        "; going on after iteration 5 on 2 ranks = 2 replicas"
    )
    assert any(message.startswith("Healed: ") for message in caplog.messages)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_every_exchange_arrangement_and_place(case: Case) -> None:
    """700 runs; ``scripts/chaos losses`` does the same."""
    write_speeds(0.1, 0.2, 0.3, 0.1)
    check(case.kills(random.Random(1)), 4, *case.overrides)


class Terminated(SignalActions):
    """Gets SIGTERM, so to speak, in an iteration of its solver; touches none of the process's handlers."""

    def __init__(self, iteration: int) -> None:
        super().__init__()
        self.solver: Solver | None = None
        self._iteration = iteration

    def take(self) -> SignalAction:
        due = not self.terminated and self.solver is not None and self.solver.iter == self._iteration
        self.terminated |= due
        return SignalAction.STOP if due else SignalAction.NONE


def test_a_signal_outlives_the_iteration_that_broke_off() -> None:
    """It was taken, and the sum that should have told the others never came."""

    def run(world: Communicator) -> tuple[int, bool]:
        signals = Terminated(3) if world.rank == 0 else None
        with Solver(
            read_plan("solver.prototxt", ["snapshot: 5"]), TrainOptions(signals=signals), world=world.Dup()
        ) as solver:
            if signals:
                signals.solver = solver
            solver.solve()
            return solver.iter, solver.terminated

    with injected(Kills([Kill(1, 3, "W")])):
        assert run_ranks(3, run, tolerant=True) == [(3, True)] * 2
    assert Path("small_iter_3.solverstate").exists()
