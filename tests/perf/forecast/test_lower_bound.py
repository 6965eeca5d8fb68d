"""Nothing is played faster than its bounds say, whatever the plan; and where nothing is left out, they are the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.base.errors import UserError
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.cluster.cluster import Cluster, IntraNodeLink
from bpt.perf.forecast import search as module
from bpt.perf.forecast.forecast import Forecast, Iteration
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.search import PlanSearch, _ClusterSearch, search
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
        parallel = candidate.parallel_param
        if (parallel.num_shards, parallel.update) == (1, pb.ParallelParameter.REPLICATED):
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


CLUSTERS = [
    nodes(3, 1, 2, 2, latency=0.001, bandwidth=BYTES * 4),
    nodes(2, 2, 2, 2, latency=0.2, bandwidth=1e9),
    nodes(2, 2, 2, 2, bandwidth=BYTES / 20),
]


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("norm", [None, "", NORM], ids=["small", "branches", "norm"])
def test_nothing_better_is_passed_over(
    tmp_path: Path, cluster: Cluster, norm: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same plans in the same order as if all were played."""
    plan, costs = small(tmp_path) if norm is None else branches(tmp_path, norm)
    found = search(plan, costs, cluster, top=4)
    monkeypatch.setattr(module._ClusterSearch, "_bound", lambda self, candidate: 0.0)
    monkeypatch.setattr(Iteration, "lower_bound", 0.0)
    everything = search(plan, costs, cluster, top=1000)
    assert found.played < everything.played
    assert [(each.plan.parallel_param, each.seconds) for each in found.best] == [
        (each.plan.parallel_param, each.seconds) for each in everything.best[:4]
    ]
    assert found.plain is not None and found.best[0].seconds <= found.plain.seconds


def test_other_links_do_not_look_for_stages_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, costs = small(tmp_path, "parallel_param { num_stages: 2 }")
    seeker = module.PlanSearch(plan, costs)
    first = seeker.on(CLUSTERS[0])
    monkeypatch.setattr(module, "stage_kinds", None)
    assert seeker.on(CLUSTERS[0].faster(10.0)).best[0].seconds < first.best[0].seconds


def test_unlike_ranks_get_unlike_shares(tmp_path: Path) -> None:
    plan, costs = small(tmp_path, "parallel_param { num_stages: 1 num_shards: 1 }")
    best = search(plan, costs, nodes(3, 1)).best[0]
    assert best.plan.parallel_param.balance == pb.ParallelParameter.DYNAMIC
    assert best.seconds == pytest.approx(2.0)


def test_what_is_set_stands(tmp_path: Path) -> None:
    plan, costs = small(tmp_path, "parallel_param { exchange: TREE num_stages: 2 pipeline_param { micro_batches: 2 } }")
    for each in search(plan, costs, CLUSTERS[0], top=50).best:
        parallel = each.plan.parallel_param
        assert (parallel.exchange, parallel.num_stages) == (pb.ParallelParameter.TREE, 2)
        assert parallel.pipeline_param.micro_batches == 2


def test_memory_is_a_limit(tmp_path: Path) -> None:
    plan, costs = small(tmp_path)
    whole = search(plan, costs, nodes(2, 2)).best[0]
    room = float(whole.peak_memory.max()) - 1
    found = search(plan, costs, nodes(2, 2, memory=room))
    assert found.short > 0
    assert all((each.peak_memory <= room).all() for each in found.best)
    with pytest.raises(UserError, match="no plan fits into the memory of 2 ranks"):
        search(plan, costs, nodes(2, 2, memory=10))


def test_the_reason_if_nothing_is_allowed(tmp_path: Path) -> None:
    plan, costs = small(tmp_path, "parallel_param { num_stages: 3 }")
    with pytest.raises(UserError, match="the solver's settings allow no plan on 4 ranks: parallel"):
        search(plan, costs, nodes(1, 1, 1, 1))


def test_replicas_with_batches_of_their_own_stay_as_many(tmp_path: Path) -> None:
    plan, costs = small(tmp_path, "parallel_param { batch_scope: REPLICA }")
    assert {each.plan.parallel_param.replica_ranks for each in search(plan, costs, CLUSTERS[2], top=50).best} == {1}
