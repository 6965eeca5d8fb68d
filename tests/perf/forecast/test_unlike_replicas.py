"""The forecast of replicas that are not alike, worked out by hand, and the search for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bpt.parallel.cluster.cluster import Cluster
from bpt.perf.forecast.forecast import forecast
from bpt.perf.forecast.search import search
from tests.support.small_forecasts import BYTES, nodes, small

UNLIKE = "parallel_param { replica { } replica { num_stages: 2 } pipeline_param { micro_batches: 2 } }"
GRADIENTS = 112 / 307, 195 / 307  # of conv, and of ip


def test_a_fast_rank_beside_a_pipeline(tmp_path: Path) -> None:
    """Of 8 samples each replica has 4. The fast one trains 2 in a second. The slow ones have half of the work each, and
    fill and drain: 3/2 of 2 s. Without limit nothing of the exchange is seen."""
    made = forecast(*small(tmp_path, UNLIKE), nodes(2, 1, 1), bars=True)
    assert made.shares == (4, 4)
    assert made.seconds == pytest.approx(3)
    assert made.computing.tolist() == pytest.approx([2, 2, 2])
    assert made.exposed == 0
    assert made.peak_memory[0] > made.peak_memory[1:].max()
    assert {bar.rank for bar in made.bars} == {0, 1, 2}


def test_gradients_are_summed_by_who_holds_them(tmp_path: Path) -> None:
    """The link of rank 0 is slow: 1 s for all gradients. The top stage ends at 7/3 s; rank 0 sums ip's with it from
    then on, and conv's with the bottom stage when that ends, at 3 s and not before ip's are through."""
    cluster = Cluster((nodes(2, bandwidth=BYTES).nodes[0], *nodes(1, 1).nodes))
    made = forecast(*small(tmp_path, UNLIKE), cluster)
    assert made.seconds == pytest.approx(max(7 / 3 + GRADIENTS[1], 3) + GRADIENTS[0])
    slower = forecast(*small(tmp_path, UNLIKE), Cluster((nodes(2, bandwidth=BYTES / 4).nodes[0], *nodes(1, 1).nodes)))
    assert slower.seconds == pytest.approx(7 / 3 + 4)


def test_shares_by_speed(tmp_path: Path) -> None:
    """The pipeline is as fast as two slow ranks together: 2 of 8 samples where the fast rank has 6."""
    made = forecast(*small(tmp_path, UNLIKE, "parallel_param { balance: DYNAMIC }"), nodes(6, 1, 1))
    assert made.shares == (6, 2)


def test_a_search_finds_them_where_slow_ranks_have_little_memory(tmp_path: Path) -> None:
    plan, costs = small(tmp_path)
    hosts = nodes(1, 0.4, 0.4)
    made = forecast(plan.with_parallel(**{"replica": small(tmp_path, UNLIKE)[0].parallel_param.replica}), costs, hosts)
    memory = float(made.peak_memory[1:].max())
    little = Cluster(tuple(replace(node, memory=memory if node.speed < 1 else node.memory) for node in hosts.nodes))
    found = search(plan, costs, little, top=100)
    assert found.best[0].plan.parallel_param.layout(3).stages == (1, 2)
    regular = [each for each in found.best if not each.plan.parallel_param.replica]
    assert regular and all(each.plan.parallel_param.replica_ranks == 3 for each in regular)
    fixed = search(small(tmp_path, UNLIKE)[0], costs, little, top=100)
    assert {each.plan.parallel_param.layout(3).stages for each in fixed.best} == {(1, 2)}
    assert not any(
        each.plan.parallel_param.replica
        for each in search(small(tmp_path, "parallel_param { num_stages: 3 }")[0], costs, little, top=100).best
    )
