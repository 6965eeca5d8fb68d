"""BatchSharing: the division of batches into the shares of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.precision import FLOAT32, Precision
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.share import Share
from bpt.graph.staging import Staging
from bpt.nn.layers.base import batch_of
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.balance import Balance, Static
from bpt.parallel.balance.dynamic import Dynamic
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.train.runtime.layer_holders import LayerHolders


@dataclass(frozen=True)
class ReplicaShare:
    """The share that a single process trains instead of one of many ranks.

    Attributes:
        share: the share of a batch, for the batch size in the text.
        ranks, keeps_batches, unweighted: properties of all these ranks (see PassContext).
    """

    share: Callable[[int], Share]
    ranks: int
    keeps_batches: bool = False
    unweighted: bool = False


class BatchSharing:
    """The division of batches over the ranks.

    Args:
        param, staging, replica_share: as in Parallel.

    Attributes:
        grid, balance, batch_factor, keeps_batches: as in Parallel.
        is_peer: whether every shard has samples of its own.
        samples: the ranks that have samples and the same number of stage. In a regular layout they run the same layers,
            except for the model-parallel ones.
        holders: the ranks that have samples, by the layers that they run.
    """

    def __init__(
        self,
        param: ParallelSpec,
        grid: ProcessGrid,
        balance: Balance,
        batch_factor: int | None,
        staging: Staging | None,
        keeps_batches: bool,
        replica_share: ReplicaShare | None,
    ) -> None:
        self.grid = grid
        self.balance = balance
        multiplies = param.batch_scope == pb.ParallelParameter.REPLICA
        self.batch_factor = batch_factor or (grid.replicas if multiplies else 1)
        self.keeps_batches = replica_share.keeps_batches if replica_share else keeps_batches
        self.is_peer = peer = param.fc_param.scheme == pb.FcParameter.PEER
        self.samples = grid.across_samples if peer else grid.across_replicas
        self.holders = LayerHolders(grid, staging, by_shard=not peer)
        self._param = param
        self._staging = staging
        self._replica_share = replica_share
        self._group = grid.shards if peer else 1  # ranks of a replica that have samples
        self._rank = grid.replica * self._group + (grid.shard if peer else 0)  # a slave counts as its master
        self._shares: dict[tuple[int, int], tuple[Share, ...]] = {}  # by samples and phase

    @property
    def has_outputs(self) -> bool:
        """Whether this rank runs the layers with the net's outputs; a slave does not."""
        return self._group == self.grid.shards or self.grid.shard == 0

    @property
    def number(self) -> int:
        """The number of shares of a batch."""
        return self.grid.replicas * self._group

    @property
    def ranks_with_samples(self) -> tuple[int, ...]:
        """A rank of each share of a batch, by its number in the world: with this one's stage, or the last before it."""
        layout, stage = self.grid.layout, self.grid.stage
        return tuple(
            layout.rank(replica, min(stage, stages - 1), shard)
            for replica, stages in enumerate(layout.stages)
            for shard in range(self._group)
        )

    @property
    def unweighted(self) -> bool:
        """Whether the means of all ranks have the same weight, as PassContext defines it."""
        if self._replica_share:
            return self._replica_share.unweighted
        return self._param.balance_param.normalizer == pb.BalanceParameter.UNIFORM

    def shares(self, samples: int, phase: int = pb.TRAIN) -> tuple[Share, ...]:
        """Return the shares of all ranks with samples, for the batch size ``samples`` in the text.

        As in Caffe, a test has the text's batch; and no limits of memory apply.
        """
        if self._replica_share and phase == pb.TRAIN:
            return (self._replica_share.share(samples),)
        if (samples, phase) not in self._shares:
            balance, batch = self.balance, samples * (self.batch_factor if phase == pb.TRAIN else 1)
            if phase != pb.TRAIN and isinstance(balance, Static | Dynamic):
                balance = balance.without_caps()
            self._shares[samples, phase] = balance.shares(batch, self.number)
        return self._shares[samples, phase]

    def shares_of_replica(self, phase: int, samples: int) -> tuple[Share, ...]:
        """Return the shares of this replica's ranks, which have slices of the same layers."""
        first = self.grid.replica * self._group
        return self.shares(samples, phase)[first : first + self._group]

    def weight_of(self, graph: LayerGraph, replicas: Sequence[int]) -> float:
        """Return the fraction of a batch, or of the ranks if all ranks have the same weight, in these replicas."""
        counts = [share.count for share in self.shares(batch_of(graph))]
        if self.unweighted or not any(counts):
            counts = [1] * len(counts)
        each = self._group
        return sum(sum(counts[replica * each : (replica + 1) * each]) for replica in replicas) / sum(counts)

    def first_rank(self, graph: LayerGraph) -> int:
        """Return the first rank that has samples of a net's batches, by its number among the holders of a layer."""
        return next((rank for rank, share in enumerate(self.shares(batch_of(graph))) if share.count), 0)

    def reshare(self, nets: Iterable[Net]) -> None:
        """Give all layers the shares of a changed balance, between iterations, and drop prefetched data."""
        self._shares.clear()
        for net in nets:
            factor = self.batch_factor if net.graph.phase == pb.TRAIN else 1
            for layer in net.data_layers().values():
                layer.share = net.context.split(layer.share.total // factor)

    def context(
        self, seed: int, phase: int = pb.TRAIN, precision: Precision = FLOAT32, graph: LayerGraph | None = None
    ) -> PassContext:
        """Return the context of passes for the layers of nets in ``phase``.

        Args:
            graph: the net whose layers sum over the ranks.
        """
        named = zip(graph.nodes, self.holders.of_layers(graph), strict=True) if graph else ()
        groups = {node.name: group for node, group in named if group}
        return PassContext(
            seed=seed,
            precision=precision,
            ranks=self._replica_share.ranks if self._replica_share and phase == pb.TRAIN else self.number,
            split=lambda samples: self.shares(samples, phase)[self._rank],
            total=partial(_total, groups),
            keeps_batches=self.keeps_batches,
            micro_batch_splits=self._staging.cuts if self._staging and phase == pb.TRAIN else (),
            sync_batch_norm=self._param.sync_batch_norm,
            unweighted=self.unweighted,
        )

    def close(self) -> None:
        """Free the communicators of the holders; a collective call."""
        self.holders.close()


def _total(groups: Mapping[str, Communicator], tensor: Tensor, layer: str) -> Tensor:
    host = tensor.detach().cpu().contiguous()
    groups[layer].Allreduce(host.numpy())
    return host.to(tensor.device)
