"""The groups of ranks that hold the same layers, when replicas are alike and when they are not."""

from __future__ import annotations

from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.staging import Staging
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.train.runtime.layer_holders import LayerHolders
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.small_solver import NET

LAYERS = ("data", "conv", "ip", "loss")
OF_STAGES = {1: (0, 0, 0, 0), 2: (0, 0, 1, 1), 3: (0, 1, 2, 2)}
Groups = list[list[int] | None]


def groups(layout: ReplicaLayout) -> list[Groups]:
    """For each rank and layer, the ranks that hold it; ``None``: this rank does not."""
    of_kinds = tuple(OF_STAGES[stages] for stages in layout.kinds)

    def on_rank(comm: Communicator) -> Groups:
        grid = ProcessGrid.make(comm, layout)
        kind = layout.kind_of(grid.replica)
        unlike = of_kinds if len(of_kinds) > 1 else ()
        staging = Staging(LAYERS, of_kinds[kind], pb.PipelineParameter.GPIPE, (2,), of_kinds=unlike)
        holders = LayerHolders(grid, staging)
        members = {group: group.allgather(comm.rank) for group in holders.groups}
        found = [members[group] if group else None for group in holders.of_layers(graph_of(NET))]
        holders.close()
        return found

    return run_ranks(layout.size, on_rank)


def test_alike() -> None:
    first, second = [[0, 2], [0, 2], None, None], [None, None, [1, 3], [1, 3]]
    assert groups(ReplicaLayout((2, 2))) == [first, second, first, second]


def test_unlike() -> None:
    """Rank 0 has the whole net, ranks 1 and 2 are one pipeline, ranks 3 to 5 another."""
    data, conv, top = [0, 1, 3], [0, 1, 4], [0, 2, 5]
    assert groups(ReplicaLayout((1, 2, 3))) == [
        [data, conv, top, top],
        [data, conv, None, None],
        [None, None, top, top],
        [data, None, None, None],
        [None, conv, None, None],
        [None, None, top, top],
    ]
