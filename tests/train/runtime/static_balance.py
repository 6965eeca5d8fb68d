"""Profiles for ``balance: STATIC``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bpt.config.plan.run_plan import RunPlan
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.profile import Profile, RankSpeed, SpeedFacts, write_profile
from bpt.parallel.balance.rank_facts import facts
from bpt.parallel.balance.speed import Estimate
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU


def facts_of(solver: RunPlan, ranks: int) -> SpeedFacts:
    alone = facts(solver, build_graph_of(solver.train), CPU, SerialCommunicator())
    return replace(alone, ranks=alone.ranks * ranks)


def write(solver: RunPlan, now: SpeedFacts) -> None:
    """A profile in which rank r takes r + 1 seconds a sample."""
    speeds = tuple(RankSpeed({1: Estimate(rank + 1.0, 0.0, 5)}, 100) for rank in range(len(now.ranks)))
    write_profile(Profile(now, speeds, 8, "small", "0.1.0"), str(Path(solver.path).parent / "speed.json"))
