"""Ranks that are threads and die at a call of a communicator, as it begins or ends: each place that calls one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from tests.chaos.losses import ALONE
from tests.support.doubles.thread_ranks import Killed, ThreadCommunicator, run_ranks
from tests.support.spread_runs import Saved, remove_snapshots

COMM = "/bpt/system/comm/"


class Place(NamedTuple):
    """Where the program calls a communicator.

    Attributes:
        method: of the communicator.
        where: file and function of the caller, without line, so that names of tests stay.
        number: which call of this rank there, from 0.
    """

    method: str
    where: str
    number: int


class Death(NamedTuple):
    """A rank of the job dies at a place.

    Attributes:
        rank: of the job.
        place: where.
        ends: whether as the call ends, not as it begins: its own part has been sent.
    """

    rank: int
    place: Place
    ends: bool = False


class Calls:
    """Calls that each rank has made since it began to train, and the deaths that are still to come."""

    def __init__(self, *deaths: Death) -> None:
        self.seen: dict[int, list[Place]] = {}  # by rank
        self.left = list(deaths)
        self._dead: set[int] = set()
        self._lock = threading.Lock()

    def begin(self, rank: int) -> None:
        """Count from here on."""
        with self._lock:
            self.seen[rank] = []

    def end(self, rank: int) -> None:
        """Count no more: the work is done, and what the rank has seen stays."""
        with self._lock:
            self.seen[-1 - rank] = self.seen.pop(rank)

    def come(self, comm: Communicator, method: str) -> Death | None:
        """Return the death that awaits the rank in this call; raise Killed if it is dead already."""
        rank = comm.world_ranks[comm.rank]
        with self._lock:
            if rank in self._dead:
                raise Killed
            if rank not in self.seen:
                return None
            where = _caller()
            number = sum(place[:2] == (method, where) for place in self.seen[rank])
            place = Place(method, where, number)
            self.seen[rank].append(place)
            death = next((death for death in self.left if death.rank == rank and death.place == place), None)
            if death:
                self.left.remove(death)
            return death

    def die(self, comm: Communicator) -> None:
        """Let the rank be lost at once, whichever of its threads comes here."""
        assert isinstance(comm, ThreadCommunicator)
        rank = comm.world_ranks[comm.rank]
        with self._lock:
            self._dead.add(rank)
        comm._group.job.lose(rank)
        raise Killed


def _caller() -> str:
    frame = sys._getframe(1)
    while frame.f_back and (COMM in (name := frame.f_code.co_filename) or "/bpt/" not in name):
        frame = frame.f_back
    name = frame.f_code.co_filename.rpartition("/bpt/")[2]
    return f"{name}:{frame.f_code.co_name}"


@contextmanager
def deadly(calls: Calls) -> Iterator[None]:
    """Let ranks come by ``calls`` with every call of a communicator, of buffers or objects."""
    plain = Communicator._call, Communicator._object_call

    def watched(which: int) -> Any:
        def call(self: Communicator, method: str, *seen: Any, **more: Any) -> AbstractContextManager[None]:
            return inside(self, method, plain[which](self, method, *seen, **more))

        return call

    @contextmanager
    def inside(self: Communicator, method: str, context: AbstractContextManager[object]) -> Iterator[None]:
        death = calls.come(self, method)
        if death and not death.ends:
            calls.die(self)
        with context:
            yield
        if death:
            calls.die(self)

    with patch.object(Communicator, "_call", watched(0)), patch.object(Communicator, "_object_call", watched(1)):
        yield


def solve(calls: Calls, ranks: int, *overrides: str) -> list[int]:
    """Train on so many ranks; the iterations that each which is left has done."""

    def run(world: Communicator) -> int:
        with Solver(read_plan("solver.prototxt", [ALONE, *overrides]), world=world.Dup()) as solver:
            calls.begin(world.rank)
            solver.solve()
            calls.end(world.rank)
            return solver.iter

    with deadly(calls):
        return run_ranks(ranks, run, tolerant=True)


def places(ranks: int, *overrides: str, deaths: tuple[Death, ...] = ()) -> dict[int, list[Place]]:
    """Return the calls of each rank that is left, of a run with these deaths; its snapshots are removed."""
    calls = Calls(*deaths)
    solve(calls, ranks, *overrides)
    remove_snapshots()
    return {-1 - rank: seen for rank, seen in calls.seen.items() if rank < 0}


def check(deaths: tuple[Death, ...], expected: Mapping[int, Saved], ranks: int, *overrides: str) -> None:
    """Assert that what is left after the deaths ends as an undisturbed run, in the current folder."""
    calls = Calls(*deaths)
    done = solve(calls, ranks, *overrides)
    assert len(done) == ranks - len(deaths) and set(done) - {0} == {9}, done  # a spare that nobody needed did none
    assert not calls.left, f"nobody came to {calls.left}"
    for iteration, saved in expected.items():
        Saved.read(iteration).check(saved, 1e-5)
    remove_snapshots()
    assert not [path for path in Path().iterdir() if "tmp" in path.name], "half-written files are left"
