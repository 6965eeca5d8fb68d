"""``balance: STATIC`` takes the profile of this run, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bpt.base.errors import FileError
from bpt.config.plan.run_plan import RunPlan
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance import Static
from bpt.parallel.balance.divided_net import Division
from bpt.parallel.balance.load_balance import division_of, static_balance
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.system.device import CPU
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_solver import SOLVER, small_solver
from tests.train.runtime.static_balance import facts_of, write

TEXT = SOLVER + 'parallel_param { balance: STATIC\n  balance_param { profile: "speed.json" } }\n'


def balances(solver: RunPlan, ranks: int = 2) -> list[Static]:
    def rank(comm: Communicator) -> Static:
        return static_balance(solver, build_graph_of(solver.train), ProcessGrid.regular(comm), CPU)

    return run_ranks(ranks, rank)


def complaint(solver: RunPlan, ranks: int = 2) -> str:
    with pytest.raises(FileError) as caught:
        balances(solver, ranks)
    return str(caught.value)


def test_shares_of_the_profile(tmp_path: Path) -> None:
    solver = small_solver(tmp_path, text=TEXT)
    write(solver, facts_of(solver, 2))
    first, second = balances(solver)
    # 5 and 3 samples take 5 and 6 seconds; with 6 and 2 it would be 6 and 4: as long.
    assert [share.count for share in first.shares(8, 2)] == [5, 3]
    assert first.shares(8, 2) == second.shares(8, 2)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda now: replace(now, ranks=now.ranks[:1]), "it is of 1 rank, now there are 2"),
        (lambda now: replace(now, network="other"), "it is of another network"),
        (lambda now: replace(now, ranks=(now.ranks[0], replace(now.ranks[1], host="z"))), "rank 1 ran on host z"),
    ],
)
def test_a_foreign_profile(tmp_path: Path, change, difference: str) -> None:  # type: ignore[no-untyped-def]
    solver = small_solver(tmp_path, text=TEXT)
    write(solver, change(facts_of(solver, 2)))
    message = complaint(solver)
    assert message.startswith(f"{tmp_path}/speed.json: was not measured for this run: {difference}")
    remedy = f"mpirun -n 2 … bpt time --solver {solver.path} --profile {tmp_path}/speed.json"
    assert message.endswith(f"Measure on these hosts, with the same --set: {remedy}")


@pytest.mark.parametrize(
    ("fields", "sharers"), [("", 4), ("num_shards: 2", 4), ("num_shards: 2 fc_param { scheme: MASTER_SLAVE }", 2)]
)
def test_one_profile_serves_every_division_of_its_net(
    fields: str, sharers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ranks take 1, 2, 3 and 4 s a sample; rank 3 had 4 times the threads when that was measured."""
    solver = small_solver(tmp_path, text=TEXT.replace("STATIC\n", f"STATIC {fields}\n"))
    now = facts_of(solver, 4)
    then = replace(now.ranks[3], threads=4 * now.ranks[3].threads)
    write(solver, replace(now, ranks=(*now.ranks[:3], then)))

    def rank(comm: Communicator) -> tuple[Static, Division]:
        grid, graph = ProcessGrid.regular(comm, 1, solver.parallel_param.num_shards), build_graph_of(solver.train)
        return static_balance(solver, graph, grid, CPU), division_of(solver, graph, grid, None)

    balance, division = run_ranks(4, rank)[0]
    assert len(balance.functions) == sharers
    assert sum(share.count for share in balance.shares(8, sharers)) == 8
    assert (division.split_part > 0) == bool(fields)
    threads = f"with {then.threads}, now {now.ranks[3].threads}"
    assert f"other threads: rank 3 (host {then.host}) {threads}. Times are taken" in caplog.text
    if not fields:
        assert [f.seconds(1) for f in balance.functions] == [1.0, 2.0, 3.0, 16.0]


def test_no_profile(tmp_path: Path) -> None:
    solver = small_solver(tmp_path, text=TEXT)
    assert complaint(solver).startswith("speed.json: cannot be read: No such file or directory. ")
    assert complaint(solver).endswith("--profile speed.json")
