"""LayerHolders: the communicators of the ranks that hold the same layers."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.config.plan.replica_layout import Holders
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.staging import Staging
from bpt.graph.transfers import is_source
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid


class LayerHolders:
    """The groups of ranks that hold the same layers, one rank (or the shards of one stage) of each replica.

    In a regular layout these are the ranks of a stage. If replicas are unlike, a stage of one replica has layers of
    several stages of another, so it is in several groups. The constructor is a collective call.

    Args:
        grid: the place of this rank.
        staging: the stages of layers; ``None``: each replica has one stage.
        by_shard: whether each shard has a group of its own, for slices of parameters.
    """

    def __init__(self, grid: ProcessGrid, staging: Staging | None, by_shard: bool = True) -> None:
        layout = grid.layout
        self._staging = staging
        self._of_sources: Holders = (0,) * (len(staging.of_kinds) or 1 if staging else 1)
        kind = layout.kind_of(grid.replica)
        distinct = set(zip(*(staging.of_kinds or (staging.of_layers,)), strict=True)) if staging else set()
        self._groups: dict[Holders, Communicator] = {}
        for disjoint in _disjoint(sorted({self._of_sources, *distinct})):
            mine = [number for number, holders in enumerate(disjoint) if holders[kind] == grid.stage]
            number = mine[0] if mine else len(disjoint)
            group = grid.world.Split(number * layout.shards + (grid.shard if by_shard else 0))
            if mine:
                self._groups[disjoint[number]] = group
            else:
                group.Free()

    @property
    def groups(self) -> tuple[Communicator, ...]:
        """The groups of this rank, in the order of the layers that they hold."""
        return tuple(self._groups.values())

    def of_layers(self, graph: LayerGraph) -> tuple[Communicator | None, ...]:
        """Return the group that holds each layer of a net of the run; ``None``: this rank is not in it."""
        holders = self._staging.holders(graph) if self._staging else (self._of_sources,) * len(graph)
        return tuple(
            self._groups.get(self._of_sources if is_source(node) else holders[node.index]) for node in graph.nodes
        )

    def close(self) -> None:
        """Free all communicators; a collective call."""
        for group in self._groups.values():
            group.Free()


def _disjoint(groups: Sequence[Holders]) -> list[list[Holders]]:
    """Return the groups in as few lists as a greedy search finds, such that no rank is in two groups of a list."""
    lists: list[list[Holders]] = []
    for group in groups:
        for others in lists:
            if not any(one == other for each in others for one, other in zip(group, each, strict=True)):
                others.append(group)
                break
        else:
            lists.append([group])
    return lists
