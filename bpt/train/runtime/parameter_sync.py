"""ParameterSync: the ranks that share parameters, and the synchronisation of these and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial

import torch

from bpt.engine.optim.gradients import param_name
from bpt.engine.optim.shard_info import Numbers, ShardInfo
from bpt.graph.layer_graph import Param
from bpt.graph.segments import Segment
from bpt.graph.staging import Staging
from bpt.nn.net import Net
from bpt.parallel.exchange import Bucket, Exchange, broadcast
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.train.runtime.batch_sharing import BatchSharing
from bpt.train.runtime.cutting import last_segments
from bpt.train.runtime.layer_holders import LayerHolders


class ParameterSync:
    """The parameters that this rank shares with others; the constructor is a collective call.

    Args:
        batches: the ranks with samples.
        staging: as in Parallel.
    """

    def __init__(self, grid: ProcessGrid, batches: BatchSharing, staging: Staging | None = None) -> None:
        self._grid = grid
        self._batches = batches
        self._for_samples = LayerHolders(grid, staging, by_shard=not batches.is_peer)
        self._for_slices = LayerHolders(grid, staging)

    def groups(self, net: Net, segments: Sequence[Segment]) -> list[list[Bucket]]:
        """Return the parameters of ``net`` whose gradients each of ``segments`` completes."""
        last = last_segments(net.graph, segments)
        return [
            self._buckets(net, [p for p in self._trained(net) if last[p.index] == segment.index])
            for segment in segments
        ]

    def agree(self, net: Net, everything: bool = False) -> None:
        """Broadcast the blobs that no exchange sends (or ``everything``) from the first rank to all.

        Passes update such blobs, as a BatchNorm's statistics; they come from the first rank with samples.
        """
        params = [p for p in net.graph.learnable if net.holds(p)]
        params = [p for p in params if everything or not net.value(p).requires_grad]
        root = 0 if everything else self._batches.first_rank(net.graph)
        broadcast(self._whole(net, params), partial(Communicator.Bcast, root=root))
        broadcast(self._slices(net, params))

    def before_test(self, net: Net, exchange: Exchange) -> None:
        """Make the nets of all ranks equal, because a test is divided among them."""
        if exchange.broadcasts:
            exchange.broadcast()
        self.agree(net)

    def shard_info(self, net: Net, exchange: Exchange) -> ShardInfo:
        """Return the data of other ranks that the update rule of ``net`` needs; a collective call."""
        frozen = frozenset(exchange.frozen())
        names = tuple(param_name(net.graph, param) for param in net.graph.learnable)
        if exchange.param and exchange.param.divides_update:
            world, whole = self._grid.world, self.counted(net) if self._grid.replica == 0 else frozenset[int]()
            counted = whole | {id(each.value) for each in exchange.slices}
            return ShardInfo(frozen, counted, partial(_sum_over, world), partial(_sum_numbers, world, names))
        return ShardInfo(
            frozen,
            self.counted(net),
            self.sum_over_replica,
            partial(_sum_numbers, self._grid.across_shards, names),
            self.updates(net, frozen),
        )

    def counted(self, net: Net) -> frozenset[int]:
        """Return the ``id`` of the parameters that this rank counts in sums over a replica; each counts once."""
        params = [p for p in net.graph.learnable if net.holds(p)]
        return frozenset(id(net.value(p)) for p in params if self._grid.shard == 0 or p.index in net.part.slices)

    def updates(self, net: Net, frozen: Set[int]) -> bool:
        """Return whether any rank of this replica updates parameters of ``net``; a collective call.

        Args:
            frozen: ``id`` of the parameters that another rank updates.
        """
        own = (id(net.value(p)) for p in self._trained(net))
        return self.sum_over_replica(not frozen or any(own_id not in frozen for own_id in own)) > 0

    def sum_over_replica(self, value: float) -> float:
        """Return the sum of a number over the ranks of this replica.

        Replicas that are unlike add in different orders. All take the sum of the first one, so that weights stay equal.
        """
        total = _sum_over(self._grid.in_replica, value)
        return self._grid.world.bcast(total) if len(self._grid.layout.kinds) > 1 else total

    @staticmethod
    def _trained(net: Net) -> list[Param]:
        return [p for p in net.graph.learnable if net.holds(p) and net.value(p).requires_grad]

    def _buckets(self, net: Net, params: Sequence[Param]) -> list[Bucket]:
        return [*self._whole(net, params), *self._slices(net, params)]

    def _whole(self, net: Net, params: Sequence[Param]) -> list[Bucket]:
        """Return the parameters that this rank holds whole, by the ranks that hold them."""
        return self._by_holders(net, [p for p in params if p.index not in net.part.slices], self._for_samples)

    def _slices(self, net: Net, params: Sequence[Param]) -> list[Bucket]:
        return self._by_holders(net, [p for p in params if p.index in net.part.slices], self._for_slices)

    @staticmethod
    def _by_holders(net: Net, params: Sequence[Param], holders: LayerHolders) -> list[Bucket]:
        of_layers, wire = holders.of_layers(net.graph), net.context.precision.wire
        return [
            Bucket(
                [(param_name(net.graph, p), net.value(p)) for p in params if of_layers[p.layer] is group], group, wire
            )
            for group in holders.groups
        ]

    def close(self) -> None:
        """Free the communicators; a collective call."""
        self._for_slices.close()
        self._for_samples.close()


def _sum_over(comm: Communicator, value: float) -> float:
    """Return the sum of a number over ranks."""
    if comm.size == 1:
        return value
    total = torch.tensor([value], dtype=torch.float64)
    comm.Allreduce(total.numpy())
    return total.item()


def _sum_numbers(comm: Communicator, names: Sequence[str], numbers: Numbers, columns: int) -> Numbers:
    """Return sums of numbers of parameters over ranks that hold slices of them, each of some parameters."""
    if comm.size == 1:
        return numbers
    table = torch.zeros(len(names), columns, dtype=torch.float64)
    for row, name in enumerate(names):
        if name in numbers:
            table[row] = torch.tensor(numbers[name], dtype=torch.float64)
    comm.Allreduce(table.numpy())
    return dict(zip(names, table.tolist(), strict=True))
