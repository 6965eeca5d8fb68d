"""Parallel: how a run is spread over ranks. Who has which samples, layers and parameters, who agrees with whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from bpt.base.signals import SignalActions
from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.precision import FLOAT32, Precision
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.compute import LibraryCompute
from bpt.engine.delayed_status import DelayedStatus
from bpt.engine.operator import MakeCompute, Operator
from bpt.engine.optim.gradients import param_name
from bpt.engine.optim.shard_info import Numbers, ShardInfo
from bpt.engine.split_pass import MpiFcOperator
from bpt.engine.status import Status
from bpt.graph.layer_graph import LayerGraph, Param
from bpt.graph.part import WHOLE, Part
from bpt.graph.segments import Segment
from bpt.graph.share import Share
from bpt.graph.stages import part_of
from bpt.graph.staging import Staging
from bpt.nn.layers.base import batch_of
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.balance import Balance, Static
from bpt.parallel.balance.dynamic import Dynamic
from bpt.parallel.exchange import EXCHANGES, Bucket, Exchange, broadcast
from bpt.parallel.exchange.codec import CODECS, Codec
from bpt.parallel.exchange.replicas import Replicas
from bpt.parallel.model_parallel import model_parallel
from bpt.parallel.model_parallel.master_slave import MasterSlave
from bpt.parallel.model_parallel.peer import Peer
from bpt.parallel.pipeline.stage import Stage
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.comm.grid import ProcessGrid
from bpt.system.device import CPU
from bpt.train.runtime.cleanup import Closeable
from bpt.train.runtime.cutting import SEGMENT, gathered, last_segments, segments_of

PEER = pb.FcParameter.PEER


@dataclass(frozen=True)
class ReplicaShare:
    """The share that one process trains in place of one of many ranks.

    Attributes:
        share: of a batch that the text says has so many samples.
        ranks, keeps_batches, unweighted: of all these ranks; see PassContext.
    """

    share: Callable[[int], Share]
    ranks: int
    keeps_batches: bool = False
    unweighted: bool = False


class Parallel(Closeable):
    """The parallelisation by ``parallel_param`` on the ranks that there are; one rank is the simplest case.

    Args:
        param: the solver's ``parallel_param``, already checked.
        grid: the ranks; ``close`` gives it back.
        balance: says which rank gets how many samples.
        batch_factor: a batch has so many times the samples that the text says; by default as many as there are
            replicas under ``batch_scope: REPLICA``, else 1.
        staging: which stage of a pipeline runs which layers; ``None``: there are no stages.
        keeps_batches: the training net's batches stay whole; see PassContext.
        portion: of the training batches, that this one process trains in the place of some of many ranks.
    """

    def __init__(
        self,
        param: ParallelSpec,
        grid: ProcessGrid,
        balance: Balance,
        batch_factor: int | None = None,
        staging: Staging | None = None,
        keeps_batches: bool = False,
        portion: ReplicaShare | None = None,
    ) -> None:
        self.param = param
        self.grid = grid
        self.balance = balance
        multiplies = param.batch_scope == pb.ParallelParameter.REPLICA
        self.batch_factor = batch_factor or (grid.replicas if multiplies else 1)
        peer = param.fc_param.scheme == PEER
        # The ranks that have samples, and run all layers but the model-parallel ones.
        self.samples = grid.across_samples if peer else grid.across_replicas
        self._group = grid.shards if peer else 1  # ranks of a replica that have samples
        self._rank = grid.replica * self._group + (grid.shard if peer else 0)  # a slave counts as its master
        self._for_samples = self.samples.Dup()
        self._for_slices = grid.across_replicas.Dup()
        self.comm_thread = CommThread(grid.world)
        self.staging = staging
        self._portion = portion
        self._keeps_batches = portion.keeps_batches if portion else keeps_batches
        self._shares: dict[tuple[int, int], tuple[Share, ...]] = {}  # by samples and phase, see ``shares``
        self._links = StageLinks(grid.across_stages.Dup()) if staging else None

    @property
    def is_alone(self) -> bool:
        """Whether there is only one rank."""
        return self.grid.world.size == 1

    @property
    def has_outputs(self) -> bool:
        """Whether this rank runs the layers that make the net's outputs; a slave does not."""
        return self.grid.shards == 1 or self.param.fc_param.scheme == PEER or self.grid.shard == 0

    @property
    def ranks_with_samples(self) -> tuple[int, ...]:
        """The ranks that share a batch and run this one's layers, by their number in the world."""
        grid = self.grid
        first = range(grid.stage * grid.shards, grid.world.size, grid.stages * grid.shards)
        return tuple(rank + shard for rank in first for shard in range(self._group))

    def shares(self, samples: int, phase: int = pb.TRAIN) -> tuple[Share, ...]:
        """Return the shares of the ranks that have samples, of a batch whose text says ``samples``.

        A test has the text's batch, as in Caffe, and no limits of memory.
        """
        if self._portion and phase == pb.TRAIN:
            return (self._portion.share(samples),)
        if (samples, phase) not in self._shares:
            balance, batch = self.balance, samples * (self.batch_factor if phase == pb.TRAIN else 1)
            if phase != pb.TRAIN and isinstance(balance, Static | Dynamic):
                balance = balance.without_caps()
            self._shares[samples, phase] = balance.shares(batch, self.grid.replicas * self._group)
        return self._shares[samples, phase]

    def reshare(self, nets: Iterable[Net]) -> None:
        """Tell all layers, between iterations, that the balance has changed; data read ahead are dropped."""
        self._shares.clear()
        for net in nets:
            factor = self.batch_factor if net.graph.phase == pb.TRAIN else 1
            for layer in net.data_layers().values():
                layer.share = net.context.split(layer.share.total // factor)

    def context(self, seed: int, phase: int = pb.TRAIN, precision: Precision = FLOAT32) -> PassContext:
        """Return what the layers of nets in ``phase`` need to know of the run."""
        return PassContext(
            seed=seed,
            precision=precision,
            ranks=self._portion.ranks if self._portion and phase == pb.TRAIN else self.samples.size,
            split=lambda samples: self.shares(samples, phase)[self._rank],
            total=self._total,
            keeps_batches=self._keeps_batches,
            micro_batch_splits=self.staging.cuts if self.staging and phase == pb.TRAIN else (),
            sync_batch_norm=self.param.sync_batch_norm,
            unweighted=self.unweighted,
        )

    @property
    def unweighted(self) -> bool:
        """Whether each rank's mean counts alike, as PassContext defines it."""
        if self._portion:
            return self._portion.unweighted
        return self.param.balance_param.normalizer == pb.BalanceParameter.UNIFORM

    @property
    def keeps_batches(self) -> bool:
        """Whether each rank has whole batches, as PassContext defines it."""
        return self._keeps_batches

    def _total(self, tensor: Tensor) -> Tensor:
        host = tensor.detach().cpu().contiguous()
        self.samples.Allreduce(host.numpy())
        return host.to(tensor.device)

    def parts(self, graph: LayerGraph) -> tuple[Part, ...]:
        """Return what each rank of a replica holds of a net: each stage, and of it each shard."""
        stages = self.staging.stages(graph) if self.staging else ()
        of_stages = [part_of(graph, stages, stage) if stages else WHOLE for stage in range(self.grid.stages)]
        if self.grid.shards == 1:
            return tuple(of_stages)
        scheme, shards = self.param.fc_param.scheme, self.grid.shards
        return tuple(part for each in of_stages for part in model_parallel.parts(graph, scheme, shards, each))

    def segments(self, graph: LayerGraph, overlap: bool = False, chunks: Sequence[int] = ()) -> tuple[Segment, ...]:
        """Return how a net is cut: between stages, at split layers and, to ``overlap`` the exchange, by parameters.

        Args:
            chunks: their numbers of trained layers, from the top down; instead of enough parameters.
        """
        return segments_of(graph, self.param, self.staging, overlap and not self.is_alone, chunks, SEGMENT)

    def operator(self, net: Net, segments: Sequence[Segment], device: torch.device) -> Operator:
        """Return the operator that runs the segments of ``net`` on this rank; a test's batches are never divided."""
        inner, training = self.param.inner_param, net.graph.phase == pb.TRAIN
        by_tasks = inner.engine != pb.InnerParameter.LIBRARY and device.type == "cpu"
        compute: MakeCompute = LibraryCompute
        if by_tasks:
            # Only what this run needs; see docs/architecture.md.
            from bpt.parallel.task_dag import TaskDagCompute  # noqa: PLC0415

            compute = partial(TaskDagCompute, threads=inner.num_threads)
        stage, delay = None, None
        splits: tuple[int, ...] = (1,)
        if self.staging:
            assert self._links
            rule = self.staging.rule if training else pb.PipelineParameter.SEQUENTIAL
            stage = Stage(self._links, self.staging.stages(net.graph), net.precision.type_of, rule)
            if training and self.is_delayed:
                delay = self.staging.delay(self.grid.stage)
            elif training:
                splits = self.staging.cuts
        return Operator(
            net,
            segments,
            device,
            compute=compute,
            collectives=self._collectives(net, device),
            stage=stage,
            splits=splits,
            gathers=gathered(net.graph, self.staging),
            delay=delay,
        )

    def _collectives(self, net: Net, device: torch.device) -> MpiFcOperator | None:
        """Return what exchanges the blobs of split layers."""
        if self.grid.shards == 1:
            return None
        if self.param.fc_param.scheme == PEER:
            return Peer(net, device, self.grid.across_shards, partial(self._shares_of_group, net.graph.phase))
        return MasterSlave(net, device, self.grid.across_shards)

    def _shares_of_group(self, phase: int, samples: int) -> tuple[Share, ...]:
        """Return the shares of the ranks that share this one's model-parallel layers."""
        first = self.grid.replica * self._group
        return self.shares(samples, phase)[first : first + self._group]

    def exchange(self, net: Net, segments: Sequence[Segment], device: torch.device = CPU) -> Exchange:
        """Return what sums the gradients of ``net``, cut into ``segments``; a collective call."""
        way = EXCHANGES[pb.ParallelParameter.Exchange.Name(self.param.exchange)]
        replicas = Replicas(self.grid.replicas, self.grid.replica, partial(self._part, net))
        return way(self.groups(net, segments), self.comm_thread, device, self.param, self.codec, replicas)

    def _part(self, net: Net, replicas: Sequence[int]) -> float:
        """Return the part of a batch that these replicas train, or their part of the ranks where ranks count alike."""
        counts = [share.count for share in self.shares(batch_of(net.graph))]
        if self.unweighted or not any(counts):
            counts = [1] * len(counts)
        each = self._group
        return sum(sum(counts[replica * each : (replica + 1) * each]) for replica in replicas) / sum(counts)

    @cached_property
    def codec(self) -> Codec | None:
        """The codec of gradients, one for all exchanges, since it remembers what it has left out."""
        param = self.param.compression_param
        return CODECS[param.name](param) if param.name else None

    def groups(self, net: Net, segments: Sequence[Segment]) -> list[list[Bucket]]:
        """Return the parameters of ``net`` whose gradients each of ``segments`` completes."""
        last = last_segments(net.graph, segments)
        return [
            self._buckets(net, [p for p in self._trained(net) if last[p.index] == segment.index])
            for segment in segments
        ]

    def agree(self, net: Net, everything: bool = False) -> None:
        """Give all ranks the first one's blobs that no exchange sends (or ``everything``).

        These are what passes leave, such as a BatchNorm's statistics: of the first rank that has samples.
        """
        params = [p for p in net.graph.learnable if net.holds(p)]
        whole, slices = self._buckets(net, [p for p in params if everything or not net.value(p).requires_grad])
        root = 0 if everything else self._first_with_samples(net)
        broadcast([whole], partial(Communicator.Bcast, root=root))
        broadcast([slices])

    def _first_with_samples(self, net: Net) -> int:
        shares = self.shares(batch_of(net.graph))
        return next((rank for rank, share in enumerate(shares) if share.count), 0)

    def before_test(self, net: Net, exchange: Exchange) -> None:
        """Give all ranks equal nets, since a test is divided among them."""
        if exchange.broadcasts:
            exchange.broadcast()
        self.agree(net)

    def shard_info(self, net: Net, exchange: Exchange) -> ShardInfo:
        """Return what the update rule of ``net`` needs of the other ranks; a collective call."""
        frozen = frozenset(exchange.frozen())
        names = tuple(param_name(net.graph, param) for param in net.graph.learnable)
        return ShardInfo(
            frozen,
            self.counted(net),
            self.sum_over_replica,
            partial(self._sum_over_shards, names),
            self.updates(net, frozen),
        )

    def _sum_over_shards(self, names: Sequence[str], numbers: Numbers, columns: int) -> Numbers:
        """Return a sum over the ranks that share this one's layers, each with some of the parameters."""
        if self.grid.shards == 1:
            return numbers
        table = torch.zeros(len(names), columns, dtype=torch.float64)
        for row, name in enumerate(names):
            if name in numbers:
                table[row] = torch.tensor(numbers[name], dtype=torch.float64)
        self.grid.across_shards.Allreduce(table.numpy())
        return dict(zip(names, table.tolist(), strict=True))

    def counted(self, net: Net) -> frozenset[int]:
        """Return the ``id`` of the parameters that this rank counts in sums over a replica; one rank counts each."""
        params = [p for p in net.graph.learnable if net.holds(p)]
        return frozenset(id(net.value(p)) for p in params if self.grid.shard == 0 or p.index in net.part.slices)

    def updates(self, net: Net, frozen: Set[int]) -> bool:
        """Return whether any rank of this replica updates parameters of ``net``; a collective call.

        Args:
            frozen: ``id`` of the parameters that another rank updates.
        """
        own = (id(net.value(p)) for p in self._trained(net))
        return self.sum_over_replica(not frozen or any(own_id not in frozen for own_id in own)) > 0

    @staticmethod
    def _trained(net: Net) -> list[Param]:
        return [p for p in net.graph.learnable if net.holds(p) and net.value(p).requires_grad]

    def _buckets(self, net: Net, params: Sequence[Param]) -> list[Bucket]:
        def values(sliced: bool) -> list[tuple[str, nn.Parameter]]:
            chosen = (p for p in params if (p.index in net.part.slices) == sliced)
            return [(param_name(net.graph, p), net.value(p)) for p in chosen]

        wire = net.context.precision.wire
        return [Bucket(values(False), self._for_samples, wire), Bucket(values(True), self._for_slices, wire)]

    def status(self, signals: SignalActions | None) -> Status:
        """Return what all ranks need of each iteration before they continue; a collective call."""
        if self.is_delayed:
            return DelayedStatus(self.grid.world, signals, self.grid.stages - 1)
        return Status(self.grid.world, self.comm_thread, signals)

    @property
    def is_delayed(self) -> bool:
        """Whether gradients are delayed between the stages."""
        return self.staging is not None and self.staging.rule == pb.PipelineParameter.DELAYED

    def any_in_step(self, own: bool) -> bool:
        """Return whether a condition holds on any rank that updates with this one; a collective call.

        All of the run or, where stages run ahead of each other, those that hold a stage together: other replicas see
        what is not finite in the gradients that they have summed.
        """
        comm = self.grid.across_shards if self.is_delayed else self.grid.world
        if comm.size == 1:
            return own
        count = torch.tensor([own], dtype=torch.float64)
        comm.Allreduce(count.numpy())
        return count.item() > 0

    def sum_over_replica(self, value: float) -> float:
        """Return the sum of a number over the ranks of this replica."""
        if self.grid.in_replica.size == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64)
        self.grid.in_replica.Allreduce(total.numpy())
        return total.item()

    def close(self, failed: bool = False) -> None:
        """End what runs beside the solver; a collective call, unless something ``failed``."""
        if not failed:
            self.comm_thread.wait()
        self.comm_thread.close()
        if self._links:
            self._links.close(failed)
        if not failed:
            self._for_slices.Free()
            self._for_samples.Free()
            self.grid.Free()

    @cached_property
    def described(self) -> str:
        """The parallelisation as one line of text."""
        names = [pb.ParallelParameter.Exchange.Name(self.param.exchange)]
        if self.codec:
            between = self.param.compression_param.links == pb.CompressionParameter.BETWEEN_HOSTS
            names.append(f"codec {self.param.compression_param.name}{' between hosts' * between}")
        names.append(f"balance {pb.ParallelParameter.Balance.Name(self.param.balance)}")
        if self.grid.shards > 1:
            names.append(f"model-parallel layers {pb.FcParameter.Scheme.Name(self.param.fc_param.scheme)}")
        if self.staging:
            names.append(str(self.staging))
        return f"{self.grid}; {', '.join(names)}"
