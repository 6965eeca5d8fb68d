"""Nothing is played faster than its bounds say, whatever the plan; and where nothing is left out, they are the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.cluster.cluster import Cluster, IntraNodeLink
from bpt.perf.forecast.forecast import Forecast
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.search import PlanSearch, _ClusterSearch
from tests.support.small_forecasts import BYTES, NORM, branches, nodes, small

BF16 = pb.CompressionParameter.BF16
UNLIKE = nodes(3, 1, 2, 2, 1, 4, 2, 5, overhead=0.05, latency=0.01, bandwidth=BYTES * 4)
SLOW = replace(nodes(2, 2, 1, 2, bandwidth=BYTES / 3, cores=2, ranks=2), within=IntraNodeLink(0.001, BYTES), waking=0.3)


# More ranks than cores, and all that was measured of ranks that hold each other up.
CROWDED = replace(
    nodes(2, 3, bandwidth=BYTES * 2, cores=1, ranks=4, noise=0.1, interference=1e-4, border=0.01, border_overhead=0.02,
          overhead=0.05, update=0.1),
    within=IntraNodeLink(0.001, BYTES * 4), waking=0.05, busy_waking=0.1, busy_efficiency=0.5,
)  # fmt: skip


def looked_at(plan: RunPlan, costs: NetCosts, cluster: Cluster) -> Iterator[tuple[RunPlan, float, float, Forecast]]:
    """Every candidate, both its bounds, and what playing it shows."""
    search = _ClusterSearch(plan, costs, cluster, (), {})
    for candidate in search.allowed():
        if iteration := search._iteration(candidate):
            yield candidate, search._bound(candidate), iteration.lower_bound, iteration.forecast()


@pytest.mark.parametrize("cluster", [UNLIKE, SLOW, CROWDED], ids=["unlike", "slow", "crowded"])
@pytest.mark.parametrize("norm", ["", NORM], ids=["without norm", "norm"])
@pytest.mark.parametrize("text", ["", "iter_size: 3 parallel_param { compression_param { codec: BF16 } }"])
def test_nothing_is_faster(tmp_path: Path, cluster: Cluster, norm: str, text: str) -> None:
    plan, costs = branches(tmp_path, norm, text)
    cluster = replace(cluster, nodes=tuple(replace(node, coding=((BF16, 1e-3),)) for node in cluster.nodes))
    found = list(looked_at(plan, costs, cluster))
    staged = [(least, made) for each, _, least, made in found if each.parallel_param.num_stages > 1]
    assert len(staged) > 8
    for _, rough, least, made in found:
        assert rough <= made.seconds * (1 + 1e-9), made.plan.parallel_param
        assert least <= made.seconds, made.plan.parallel_param
    # Far nearer than the work divided by all speeds, but where messages wake others up, or ranks share cores.
    near = 0.6 if cluster is UNLIKE else 0.5 if cluster is SLOW else 0.3
    for least, made in staged:
        assert least > near * made.seconds, made.plan.parallel_param


def test_of_one_stage_it_is_the_time(tmp_path: Path) -> None:
    plan, costs = small(tmp_path, "iter_size: 2", "parallel_param { num_stages: 1 }")
    for candidate, _, least, made in looked_at(plan, costs, UNLIKE):
        if candidate.parallel_param.num_shards == 1:
            assert least == pytest.approx(made.seconds)


@pytest.mark.parametrize(
    ("schedule", "micros", "seconds"),
    [
        # Each stage takes 0.25 s forward and 0.5 s backward for a micro-batch of 2; the second has what the first
        # sends after 0.25 s, is through after 4 x 0.75 s, and the first ends 0.5 s later. GPIPE as well as 1F1B.
        ("GPIPE", 4, 0.25 + 3.0 + 0.5),
        ("ONE_F_ONE_B", 4, 0.25 + 3.0 + 0.5),
        ("GPIPE", 1, 6.0),  # nothing overlaps
    ],
)
def test_by_hand(tmp_path: Path, schedule: str, micros: int, seconds: float) -> None:
    """Half of the work on each of two nodes, that would take 6 s for all of it: a third of that forward."""
    text = f"parallel_param {{ num_stages: 2 pipeline_param {{ micro_batches: {micros} schedule: {schedule} }} }}"
    plan, costs = small(tmp_path, text)
    found = list(looked_at(plan, costs, nodes(4 / 3, 4 / 3)))
    assert found
    for _, _, least, made in found:
        assert made.plan.parallel_param.pipeline_param.schedule == pb.PipelineParameter.Schedule.Value(schedule)
        assert least == pytest.approx(seconds)
        assert made.seconds == pytest.approx(seconds)


def test_gathered_micro_batches_have_one_schedule(tmp_path: Path) -> None:
    """All of them go forward before one goes backward, so that schedules would differ in nothing."""
    plan, costs = branches(tmp_path, NORM, "parallel_param { num_stages: 2 }")
    found = PlanSearch(plan, costs).on(UNLIKE, top=100)
    assert {each.plan.parallel_param.pipeline_param.schedule for each in found.best} == {pb.PipelineParameter.GPIPE}
