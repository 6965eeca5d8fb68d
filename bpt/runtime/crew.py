"""Crew: which ranks of a run train, and which are spare: they wait to take the place of one that is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bpt.comm.agreement import check_same
from bpt.comm.base import Communicator
from bpt.net_graph import build_graph_of
from bpt.plan.fault_rules import violations_of_spares
from bpt.plan.spec import RunPlan
from bpt.runtime.agreement import facts_of
from bpt.runtime.ending import Closing, Ending
from bpt.runtime.flight_log import FlightLog
from bpt.runtime.heartbeat import SPARE, Heartbeat
from bpt.runtime.recovery import Record
from bpt.violation import refuse


@dataclass(frozen=True)
class Crew:
    """The ranks of a run in step.

    Attributes:
        everyone: all of them, those that train first.
        world: those that train, where this rank does; elsewhere those that wait.
        size: how many train.
        wanted: how many are to train, as long as there are so many.
    """

    everyone: Communicator
    world: Communicator
    size: int
    wanted: int

    @property
    def trains(self) -> bool:
        """Whether this rank does."""
        return self.everyone.rank < self.size

    @classmethod
    def of_job(cls, plan: RunPlan, everyone: Communicator) -> Crew:
        """All ranks but the spares; a collective call.

        Raises:
            PrototxtError: too few would be left to train, or nobody could take over.
        """
        fault = plan.parallel_param.fault_param
        spares = fault.spares if everyone.size > 1 and fault.heals else 0
        if spares:
            refuse(plan, violations_of_spares(plan, everyone.size, everyone.tolerant))
        return cls._made(everyone, everyone.size - spares, everyone.size - spares)

    @classmethod
    def all_of(cls, world: Communicator) -> Crew:
        """All train."""
        return cls(world, world, world.size, world.size)

    def left(self, plan: RunPlan, everyone: Communicator) -> Crew:
        """Those of ``everyone``, who are left; a collective call of these.

        With spares, ranks that are not enough for another replica of stages and shards wait, too.
        """
        count, group = min(self.wanted, everyone.size), plan.parallel_param.replica_ranks
        if plan.parallel_param.fault_param.spares and count > group:
            count -= count % group
        return self._made(everyone, count, self.wanted)

    @classmethod
    def _made(cls, everyone: Communicator, count: int, wanted: int) -> Crew:
        if count == everyone.size:
            return cls(everyone, everyone, count, wanted)
        world = everyone.Split(int(everyone.rank >= count))
        world.lacks = True  # what was measured of all ranks is of more than these
        return cls(everyone, world, count, wanted)

    def close(self, failed: bool = False) -> None:
        """Give the communicator of this part back; a collective call, unless something ``failed``."""
        if not failed and self.world is not self.everyone:
            self.world.Free()


def heartbeat_of(
    plan: RunPlan,
    crew: Crew,
    log: FlightLog | None,
    lane: int,
    settled: Callable[[], bool] = lambda: True,
    heals: bool = True,
) -> Heartbeat | None:
    """What watches all ranks of a run, if they are processes; a collective call. See Heartbeat."""
    everyone, timeout = crew.everyone, plan.parallel_param.fault_param.timeout
    apart = everyone.size > 1 and everyone.concurrent and everyone.describe()["library"] != "none"
    if log is None or not apart or not timeout:
        return None
    return Heartbeat(everyone, timeout, log, lane=lane, settled=settled, heals=heals)


class Spare(Closing):
    """A rank that waits: bound to nothing, but heard of by the others.

    In ``healing.outlive`` it stands where a Runtime does on ranks that train.

    Args:
        plan: the run that it may come to train.
        crew: of which it is.
    """

    heals = True

    def __init__(self, plan: RunPlan, crew: Crew) -> None:
        self.plan = plan
        self.crew = crew
        self.graph = build_graph_of(plan.train)
        check_same(crew.everyone, facts_of(plan, self.graph, *(build_graph_of(test) for test in plan.tests)))
        self._log = FlightLog.of(crew.everyone, plan.snapshot_prefix)
        self._ending = Ending()  # without the communicator of those that wait: some may be lost, and nobody asks
        if beat := heartbeat_of(plan, crew, self._log, SPARE):
            self._ending.add(beat.close)

    def records(self) -> list[Record]:
        """What it knows of the state of the run: nothing."""
        return []

    def record(self, error: BaseException) -> None:
        """Let the flight recorder write."""
        if self._log:
            self._log.failed(error)

    def close(self, failed: bool = False) -> None:
        """Leave; a collective call, unless something ``failed``."""
        self._ending.close(failed)
