"""The search: nothing better is passed over, what is set stands, and memory is a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.cluster.cluster import Cluster
from bpt.perf.forecast import search as module
from bpt.perf.forecast.forecast import Iteration
from bpt.perf.forecast.search import search
from tests.support.small_forecasts import BYTES, NORM, branches, nodes, small

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
    monkeypatch.setattr(module, "stage", None)
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
    with pytest.raises(UserError, match="nothing that 4 ranks could do is allowed with what the solver sets: parallel"):
        search(plan, costs, nodes(1, 1, 1, 1))


def test_replicas_with_batches_of_their_own_stay_as_many(tmp_path: Path) -> None:
    plan, costs = small(tmp_path, "parallel_param { batch_scope: REPLICA }")
    assert {each.plan.parallel_param.replica_ranks for each in search(plan, costs, CLUSTERS[2], top=50).best} == {1}
