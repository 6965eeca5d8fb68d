"""What ranks hold, forecast and measured: what a process takes at its peak while it trains some iterations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bpt.config.plan.resolve import read_plan
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster, Node
from bpt.perf.forecast.forecast import forecast
from bpt.perf.forecast.net_costs import costs_for
from scripts.benches.forecast.cases import WAYS, MemoryCase
from scripts.benches.forecast.nets import write_solver
from scripts.benches.forecast.results import Held
from scripts.benches.harness.peaks import peaks


def measured(case: MemoryCase, folder: Path) -> list[Held]:
    """A row of each rank."""
    solver = write_solver(case.net, case.images, folder)
    found = peaks(solver, case.ranks, *fields_of(case))
    return [
        Held(case.net, case.ranks, case.way, rank, predicted, peak.trained, peak.before)
        for rank, (predicted, peak) in enumerate(zip(held(case, solver), found, strict=True))
    ]


def held(case: MemoryCase, solver: Path) -> Sequence[float]:
    """The forecast: bytes of each rank. How fast ranks are does not count."""
    plan = read_plan(solver, fields_of(case))
    cluster = Cluster((Node("here", 1.0, ranks=case.ranks),))
    found: list[float] = forecast(plan, costs_for(plan, build_graph_of(plan.train)), cluster).peak_memory.tolist()
    return found


def fields_of(case: MemoryCase) -> list[str]:
    """What is laid over the solver's text."""
    return [f"parallel_param {{ {WAYS[case.way]} }}"]
