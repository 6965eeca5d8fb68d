"""RankGroup: the ranks of a run that train, and the spare ranks that wait to replace a lost one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bpt.base.violation import refuse
from bpt.config.plan.run_plan import RunPlan
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.agreement import check_same
from bpt.system.comm.base import Communicator
from bpt.train.rules.fault_rules import violations_of_spares
from bpt.train.runtime.cleanup import CleanupStack, Closeable
from bpt.train.runtime.flight_log import FlightLog
from bpt.train.runtime.heartbeat import SPARE, Heartbeat
from bpt.train.runtime.recovery import PartRecord
from bpt.train.runtime.run_facts import facts_of


@dataclass(frozen=True)
class RankGroup:
    """The ranks of a synchronous run.

    Attributes:
        everyone: all ranks; those that train come first.
        world: on ranks that train, all of these; on spare ranks, all spare ranks.
        size: number of ranks that train.
        wanted: number of ranks that should train, if enough are left.
    """

    everyone: Communicator
    world: Communicator
    size: int
    wanted: int

    @property
    def trains(self) -> bool:
        """Whether this rank trains."""
        return self.everyone.rank < self.size

    @classmethod
    def of_job(cls, plan: RunPlan, everyone: Communicator) -> RankGroup:
        """Return the group of all ranks except the spares; a collective call.

        Raises:
            PrototxtError: too few ranks would train, or spare ranks could not replace others.
        """
        fault = plan.parallel_param.fault_param
        spares = fault.spares if everyone.size > 1 and fault.heals else 0
        if spares:
            refuse(plan, violations_of_spares(plan, everyone.size, everyone.tolerant))
        return cls._made(everyone, everyone.size - spares, everyone.size - spares)

    @classmethod
    def all_of(cls, world: Communicator) -> RankGroup:
        """Return a group in which all ranks train."""
        return cls(world, world, world.size, world.size)

    def left(self, plan: RunPlan, everyone: Communicator) -> RankGroup:
        """Return the group of the remaining ranks ``everyone``; a collective call of these.

        In a run with spares, ranks that do not suffice for another replica of stages and shards wait, too.
        """
        count, group = min(self.wanted, everyone.size), plan.parallel_param.replica_ranks
        if plan.parallel_param.fault_param.spares and count > group:
            count -= count % group
        return self._made(everyone, count, self.wanted)

    @classmethod
    def _made(cls, everyone: Communicator, count: int, wanted: int) -> RankGroup:
        if count == everyone.size:
            return cls(everyone, everyone, count, wanted)
        world = everyone.Split(int(everyone.rank >= count))
        world.has_lost_ranks = True  # measurements of all ranks include lost ones
        return cls(everyone, world, count, wanted)

    def close(self, failed: bool = False) -> None:
        """Free the communicator of this part; a collective call, unless something ``failed``."""
        if not failed and self.world is not self.everyone:
            self.world.Free()


def heartbeat_of(
    plan: RunPlan,
    group: RankGroup,
    log: FlightLog | None,
    lane: int,
    settled: Callable[[], bool] = lambda: True,
    heals: bool = True,
) -> Heartbeat | None:
    """Return the Heartbeat of all ranks of a run if they are processes, else ``None``; a collective call."""
    everyone, timeout = group.everyone, plan.parallel_param.fault_param.timeout
    apart = everyone.size > 1 and everyone.concurrent and everyone.describe()["library"] != "none"
    if log is None or not apart or not timeout:
        return None
    return Heartbeat(everyone, timeout, log, lane=lane, settled=settled, heals=heals)


class SpareRank(Closeable):
    """A rank that waits to replace a lost one; it has no run, but takes part in the heartbeat.

    In ``healing.run_with_recovery`` it replaces a Runtime.

    Args:
        plan: the run that it may train later.
        group: the ranks of the run.
    """

    heals = True

    def __init__(self, plan: RunPlan, group: RankGroup) -> None:
        self.plan = plan
        self.group = group
        self.graph = build_graph_of(plan.train)
        check_same(group.everyone, facts_of(plan, self.graph, *(build_graph_of(test) for test in plan.tests)))
        self._log = FlightLog.of(group.everyone, plan.snapshot_prefix)
        self._ending = CleanupStack()  # not the spare ranks' communicator: some may be lost unnoticed
        if beat := heartbeat_of(plan, group, self._log, SPARE):
            self._ending.add(beat.close)

    def records(self) -> list[PartRecord]:
        """Return no records, because a spare rank has no part of the run's state."""
        return []

    def record(self, error: BaseException) -> None:
        """Write the flight recorder's content."""
        if self._log:
            self._log.failed(error)

    def close(self, failed: bool = False) -> None:
        """Leave the run; a collective call, unless something ``failed``."""
        self._ending.close(failed)
