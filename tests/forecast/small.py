"""The small net with costs in round numbers, on clusters in round numbers.

Of a batch of 8 samples and its 12 units of work conv has 2 forward and 4 backward, ip and loss 1 and 2 each. It trains
112 + 195 = 307 parameters, which are 1,228 bytes.
"""

from __future__ import annotations

from pathlib import Path

from bpt.placement.problem import costs_of
from bpt.plan.spec import RunPlan
from bpt.predict.costs import Costs
from bpt.schedule.cluster import Cluster, Node
from tests.solver.small_solver import NET, small_solver

BYTES = 1228.0
TIMES = {"data": (0.0, 0.0), "conv": (2.0, 4.0), "ip": (1.0, 2.0), "loss": (1.0, 2.0)}


def small(folder: Path, *overrides: str, net: str = NET) -> tuple[RunPlan, Costs]:
    """A plan, and what its net costs."""
    plan = small_solver(folder, *overrides, net=net)
    graph = plan.train.graph()
    return plan, Costs(graph, costs_of(graph, plan.precision, TIMES))


def nodes(*speeds: float, **others: float) -> Cluster:
    """Of so many samples a second each, alike in all else."""
    return Cluster(tuple(Node(f"node{n}", speed, **others) for n, speed in enumerate(speeds)))  # type: ignore[arg-type]
