"""The small net on two unlike devices, in round numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bpt.config.plan.run_plan import RunPlan
from bpt.parallel.cluster.costs_file import write_costs
from tests.support.costs import COSTS
from tests.support.small_solver import NET, SOLVER, small_solver

# A batch of 8 takes 12 s where it was measured: these are three times and once as fast.
CLUSTER = 'node { name: "fast" samples_per_second: 2 } node { name: "slow" samples_per_second: 0.66666666666666666 }\n'
PARAM = 'parallel_param { num_stages: 2 pipeline_param { devices: "d" costs: "c.json" micro_batches: 2 } }'


def two_unlike(folder: Path, *overrides: str, net: str = NET, cluster: str = CLUSTER, update: float = 0.0) -> RunPlan:
    """A solver for two stages, whose costs and devices stand beside it."""
    (folder / "d").write_text(cluster)
    write_costs(replace(COSTS, update=update), str(folder / "c.json"))
    return small_solver(folder, *overrides, net=net, text=SOLVER + PARAM)
