"""Losses by injection: ranks that are threads die where a case says, and the run must end as an undisturbed one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from bpt.config.plan.resolve import read_plan
from bpt.engine.executor import Executor
from bpt.system.comm.base import Communicator
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver import tester
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import Killed, run_ranks
from tests.support.spread_runs import Saved, remove_snapshots, set_up, train, write_speeds

ALONE = "precision: FLOAT64 snapshot: 3"
COPIES = "parallel_param { fault_param { copies: 1 } }"
STAGES = "parallel_param { num_stages: 2 pipeline_param { micro_batches: 1 } }"
SHARDS = "parallel_param { num_shards: 2 }"
STATIC = 'parallel_param { balance: STATIC balance_param { profile: "speed.json" } }'

EXCHANGES = ("ALLREDUCE", "TREE", "RING", "CGDP")
ARRANGEMENTS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "plain": (4, ()),
    "STATIC": (4, (STATIC,)),
    "2 stages": (4, (STAGES, COPIES)),
    "2 shards": (4, (SHARDS, COPIES)),
    "2 x 2": (4, (STAGES, SHARDS, COPIES)),
}
"""Ranks, and what the solver says."""

PLACES = ("F", "B", "X", "W", "U", "test", "snapshot")
WHO: Mapping[str, tuple[tuple[int, int], ...]] = {
    "the first": ((0, 0),),
    "one between": ((2, 0),),
    "the last": ((3, 0),),
    "two at once": ((0, 0), (2, 0)),
    "two in turn": ((1, 0), (0, 3)),
}
"""Ranks of 4, and how many iterations after the first loss they die."""


class Kill(NamedTuple):
    """A rank of the job dies when it comes to something in an iteration: an instruction's letter, test or snapshot."""

    rank: int
    iteration: int
    place: str


class Case(NamedTuple):
    """A plan, and what befalls it."""

    exchange: str
    arrangement: str
    who: str
    place: str

    def kills(self, choice: random.Random) -> list[Kill]:
        """The deaths, in iterations that have such a place: before 4 and 8 come tests, before 3 and 6 snapshots."""
        iterations = {"test": (4, 8), "snapshot": (3, 6)}.get(self.place, tuple(range(9)))
        deaths = WHO[self.who]
        first, later = sorted(choice.sample(iterations, 2))
        if not any(delay for _, delay in deaths):
            first = choice.choice(iterations)
        return [Kill(rank, later if delay else first, self.place) for rank, delay in deaths]

    @property
    def overrides(self) -> tuple[str, ...]:
        """What the solver says."""
        more = (COPIES,) if self.exchange == "TREE" and COPIES not in ARRANGEMENTS[self.arrangement][1] else ()
        chunks = "cgdp_param { chunk_size: 1 } " if self.exchange == "CGDP" else ""
        exchange = f"parallel_param {{ exchange: {self.exchange} {chunks}}}"
        return (exchange, *ARRANGEMENTS[self.arrangement][1], *more)


CASES = [Case(*each) for each in product(EXCHANGES, ARRANGEMENTS, WHO, PLACES)]


def campaign(seed: int, first: int, runs: int) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Cases by number, in an order of that seed, in the current folder; ``runs`` 0: all.

    After the last one all come again, in other iterations.
    """
    set_up(Path.cwd())
    write_speeds(0.1, 0.2, 0.3, 0.1)
    expected = undisturbed()
    order = random.Random(seed).sample(CASES, len(CASES))
    for number in range(first, first + (runs or len(order))):
        case = order[number % len(order)]
        kills = case.kills(random.Random(f"{seed} {number}"))
        name = ", ".join((*case, *(f"rank {kill.rank} in iteration {kill.iteration}" for kill in kills)))
        yield number, name, partial(check, kills, expected, 4, *case.overrides)


class Kills:
    """The deaths that are still to come."""

    def __init__(self, left: Sequence[Kill] = ()) -> None:
        self.left = list(left)
        self._lock = threading.Lock()

    def come(self, world: Communicator, iteration: int, place: str) -> None:
        """Called by a rank that comes somewhere."""
        kill = Kill(world.world_ranks[world.rank], iteration, place)
        with self._lock:
            due = kill in self.left
            if due:
                self.left.remove(kill)
        if due:
            raise Killed


@contextmanager
def injected(kills: Kills) -> Iterator[None]:
    """Ranks come by ``kills`` with every instruction, before and after every test and snapshot."""
    execute, test, snapshot = Executor._execute, tester.Tester.test, Runtime.snapshot

    def executing(self: Executor, instruction: Any) -> None:
        kills.come(self._status._world, self._now.iteration, instruction.letter)
        execute(self, instruction)

    def testing(self: tester.Tester, index: int) -> Any:
        world, iteration = self._runtime.world, self._runtime.iteration
        kills.come(world, iteration, "test")
        found = test(self, index)
        kills.come(world, iteration, "tested")
        return found

    def writing(self: Runtime, name: str = "") -> str:
        kills.come(self.world, self.iteration, "snapshot")
        path = snapshot(self, name)
        kills.come(self.world, self.iteration, "written")
        return path

    with (
        patch.object(Executor, "_execute", executing),
        patch.object(tester.Tester, "test", testing),
        patch.object(Runtime, "snapshot", writing),
    ):
        yield


def solve(ranks: int, *overrides: str, hosts: Sequence[str] | None = None) -> list[tuple[int, int]]:
    """Train on so many ranks that outlive each other; what each that is left comes to: its place, and iterations.

    A rank that is spare to the end comes to none.
    """

    def run(world: Communicator) -> tuple[int, int]:
        plan = read_plan("solver.prototxt", [ALONE, *overrides])
        with Solver(plan, world=world.Dup()) as solver:
            solver.solve()
            return (solver.runtime.world.rank if solver.iter else -1), solver.iter

    return run_ranks(ranks, run, hosts=hosts, tolerant=True)


def undisturbed() -> dict[int, Saved]:
    """The snapshots of a run on one process, in the current folder, which are removed."""
    train(1, ALONE)
    saved = {iteration: Saved.read(iteration) for iteration in (3, 6, 9)}
    remove_snapshots()
    return saved


def check(
    kills: Sequence[Kill],
    expected: Mapping[int, Saved],
    ranks: int,
    *overrides: str,
    spares: int = 0,
    hosts: Sequence[str] | None = None,
) -> None:
    """That what is left after the kills ends as an undisturbed run, in the current folder.

    Args:
        spares: how many of the ranks are spare at the end.
        hosts: of each rank; by default all are on one.
    """
    left = Kills(kills)
    trained = [(place, 9) for place in range(ranks - len(kills) - spares)]
    with injected(left):
        assert solve(ranks, *overrides, hosts=hosts) == trained + [(-1, 0)] * spares
    assert not left.left, f"nobody came to {left.left}"
    for iteration, saved in expected.items():
        Saved.read(iteration).check(saved, 1e-5)
    remove_snapshots()
    assert not [path for path in Path().iterdir() if "tmp" in path.name], "half-written files are left"
