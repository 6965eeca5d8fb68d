"""Who serves and who computes."""

from __future__ import annotations

import pytest

from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.outer.roles import Roles
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.training import solver_of


def roles(text: str, ranks: int) -> list[Roles]:
    param = solver_of(f"parallel_param {{ {text} }}").parallel_param

    def work(world: Communicator) -> Roles:
        return Roles.of(param, world)

    return run_ranks(ranks, work)


@pytest.mark.parametrize("text", ["", "server: DEDICATED"])
def test_rank_0_only_serves(text: str) -> None:
    found = roles(text, 3)
    assert [each.workers for each in found] == [(1, 2)] * 3
    assert [each.rank for each in found] == [0, 1, 2]
    assert [each.serves for each in found] == [True, False, False]
    assert [each.worker for each in found] == [None, 0, 1]
    assert str(found[0]) == "server on rank 0; 2 computing nodes"
    assert str(roles(text, 2)[0]) == "server on rank 0; 1 computing node"


def test_rank_0_computes_as_well() -> None:
    found = roles("server: COLOCATED", 3)
    assert [each.workers for each in found] == [(0, 1, 2)] * 3
    assert [each.serves for each in found] == [True, False, False]
    assert [each.worker for each in found] == [0, 1, 2]
    assert str(found[0]) == "server on rank 0, which computes as well; 3 computing nodes"


@pytest.mark.parametrize("text", ["server: DEDICATED", "server: COLOCATED"])
def test_a_process_that_is_alone_has_both_roles(text: str) -> None:
    found = Roles.of(solver_of(f"parallel_param {{ {text} }}").parallel_param, SerialCommunicator())
    assert (found.workers, found.serves, found.worker) == ((0,), True, 0)


def test_computing_nodes_that_are_pipelines() -> None:
    found = roles("num_stages: 3", 7)
    assert [each.workers for each in found] == [(1, 4)] * 7
    assert [each.serves for each in found] == [True] + 6 * [False]
    assert [each.worker for each in found] == [None, 0, 0, 0, 1, 1, 1]
    assert [each.leads for each in found] == [False, True, False, False, True, False, False]
    assert (found[0].ranks_of(1), found[0].place(1)) == ((4, 5, 6), "ranks 4 to 6")
    assert str(found[0]) == "server on rank 0; 2 computing nodes, each a pipeline of 3 ranks"
    assert str(roles("num_stages: 3", 4)[0]) == "server on rank 0; 1 computing node, a pipeline of 3 ranks"
    assert found[0].nodes == "2 nodes (pipelines of 3 ranks)"


def test_computing_nodes_of_replicas_stages_and_shards() -> None:
    """Ranks of a worker are numbered as those of a run: shards are next to each other, then stages."""
    found = roles("num_stages: 2 num_shards: 2 agwu_param { ranks: 8 }", 17)
    assert found[0].workers == (1, 9)
    assert [each.worker for each in found] == [None] + 8 * [0] + 8 * [1]
    assert found[0].node == "grid of 8 ranks = 2 replicas × 2 stages × 2 shards"
    assert found[0].nodes == "2 nodes (grids of 8 ranks = 2 replicas × 2 stages × 2 shards)"
    assert found[0].readers_of(1) == (9, 10, 13, 14)
    one = roles("num_shards: 2 fc_param { scheme: MASTER_SLAVE } agwu_param { ranks: 4 }", 5)[0]
    assert one.readers_of(0) == (1, 3)
    assert str(one) == "server on rank 0; 1 computing node, a grid of 4 ranks = 2 replicas × 2 shards"
    assert roles("num_stages: 2 agwu_param { ranks: 2 }", 3)[0].node == "pipeline of 2 ranks"
    assert roles("agwu_param { ranks: 2 }", 3)[0].readers_of(0) == (1, 2)


def test_the_server_and_a_pipeline_s_first_rank_are_one() -> None:
    found = roles("num_stages: 2 server: COLOCATED", 4)
    assert [each.workers for each in found] == [(0, 2)] * 4
    assert [each.worker for each in found] == [0, 0, 1, 1]
    assert [each.leads for each in found] == [True, False, True, False]
    assert str(found[0]).startswith("server on rank 0, which computes as well; 2 computing nodes, each a pipeline of 2")
    apart = roles("num_stages: 2 server: COLOCATED servers: 2", 6)
    assert apart[0].workers == (0, 4)
    assert [each.worker for each in apart] == [0, None, None, 0, 1, 1]
    assert (apart[0].ranks_of(0), apart[0].place(0), apart[0].place(1)) == ((0, 3), "ranks 0, 3", "ranks 4 to 5")


def test_computing_nodes_of_one_rank() -> None:
    found = roles("", 3)[2]
    assert (found.leads, found.ranks_of(1), found.place(1), found.nodes) == (True, (2,), "rank 2", "2 nodes")
