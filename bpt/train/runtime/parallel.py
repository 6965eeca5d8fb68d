"""Parallel: the parallelisation of a run over its ranks, and the operators that execute it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

import torch

from bpt.base.signals import SignalActions
from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.compute import LibraryCompute, TwoPartCompute
from bpt.engine.delayed_status import DelayedStatus
from bpt.engine.graphed_compute import GraphedCompute
from bpt.engine.operator import MakeCompute, Operator
from bpt.engine.optim.weight_slices import NO_SLICES, WeightSlice, WeightSlices
from bpt.engine.recorded_compute import RecordedCompute
from bpt.engine.split_pass import MpiFcOperator
from bpt.engine.status import Status
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import WHOLE, Part
from bpt.graph.segments import Segment
from bpt.graph.stages import part_of, run_again
from bpt.graph.staging import Staging
from bpt.nn.net import Net
from bpt.parallel.balance import Balance
from bpt.parallel.exchange import EXCHANGES, Bucket, Exchange
from bpt.parallel.exchange.averaging_context import Replicas
from bpt.parallel.exchange.codec import CODECS, Codec
from bpt.parallel.model_parallel import model_parallel
from bpt.parallel.model_parallel.master_slave import MasterSlave
from bpt.parallel.model_parallel.peer import Peer
from bpt.parallel.model_parallel.piece_exchange import PieceExchange
from bpt.parallel.pipeline.stage import Stage
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.system.comm.comm_thread import CommThread
from bpt.system.comm.grid import ProcessGrid, places_by_host
from bpt.system.device import CPU, computes_apart
from bpt.train.runtime.batch_sharing import BatchSharing, ReplicaShare
from bpt.train.runtime.cleanup import Closeable
from bpt.train.runtime.cutting import SEGMENT, gathered, segments_of
from bpt.train.runtime.parameter_sync import ParameterSync

PEER = pb.FcParameter.PEER


class Parallel(Closeable):
    """The parallelisation by ``parallel_param`` on the available ranks; one rank is the simplest case.

    Args:
        param: the solver's ``parallel_param``, already checked.
        grid: the ranks; ``close`` frees its communicators.
        balance: decides the number of samples of each rank.
        batch_factor: ratio of a batch to the batch size in the text; by default the number of replicas under
            ``batch_scope: REPLICA``, else 1.
        staging: the stage of each layer in a pipeline; ``None``: there are no stages.
        keeps_batches: whether the training net's batches stay whole (see PassContext).
        replica_share: the share of the training batches that this process trains instead of one of many ranks.

    Attributes:
        param, grid, staging: the arguments of these names.
        batches: the samples of each rank.
        parameters: the ranks with the same parameters.
        comm_thread: the thread that communicates while the net computes.
    """

    def __init__(
        self,
        param: ParallelSpec,
        grid: ProcessGrid,
        balance: Balance,
        batch_factor: int | None = None,
        staging: Staging | None = None,
        keeps_batches: bool = False,
        replica_share: ReplicaShare | None = None,
    ) -> None:
        self.param = param
        self.grid = grid
        self.staging = staging
        self.batches = BatchSharing(param, grid, balance, batch_factor, staging, keeps_batches, replica_share)
        self.parameters = ParameterSync(grid, self.batches, staging)
        self.comm_thread = CommThread(grid.world)
        self._links = StageLinks(grid.across_stages.Dup()) if staging else None
        self._pieces = PieceExchange(grid.across_shards, param.fc_param.pieces if grid.shards > 1 else 1)

    @property
    def is_alone(self) -> bool:
        """Whether there is only one rank."""
        return self.grid.world.size == 1

    @property
    def divides_update(self) -> bool:
        """Whether each rank updates a slice of the parameters that it holds."""
        return self.param.divides_update and not self.is_alone

    def parts(self, graph: LayerGraph) -> tuple[Part, ...]:
        """Return the part of a net on each rank of a replica, by stage and then by shard."""
        stages = self.staging.stages(graph) if self.staging else ()
        of_stages = [part_of(graph, stages, stage) if stages else WHOLE for stage in range(self.grid.stages)]
        if self.grid.shards == 1:
            return tuple(of_stages)
        scheme, shards = self.param.fc_param.scheme, self.grid.shards
        return tuple(part for each in of_stages for part in model_parallel.parts(graph, scheme, shards, each))

    def segments(self, graph: LayerGraph, overlap: bool = False, chunks: Sequence[int] = ()) -> tuple[Segment, ...]:
        """Return how a net is cut: between stages, at split layers and, to ``overlap`` the exchange, by parameters.

        Args:
            chunks: numbers of trained layers of each segment, from the top down, instead of a number of parameters.
        """
        return segments_of(graph, self.param, self.staging, overlap and not self.is_alone, chunks, SEGMENT)

    def operator(self, net: Net, segments: Sequence[Segment], device: torch.device) -> Operator:
        """Return the operator that runs the segments of ``net`` on this rank; a test's batches are never divided."""
        inner, training = self.param.inner_param, net.graph.phase == pb.TRAIN
        by_tasks = inner.engine != pb.InnerParameter.LIBRARY and device.type == "cpu"
        compute: MakeCompute = LibraryCompute
        if training and self.is_alone:
            compute = GraphedCompute if computes_apart(device) else RecordedCompute
        if by_tasks:
            # A run imports only what it needs; see docs/architecture.md.
            from bpt.parallel.task_dag import TaskDagCompute  # noqa: PLC0415

            compute = partial(TaskDagCompute, threads=inner.num_threads)
        elif training and self.staging and self.staging.rule == pb.PipelineParameter.ZERO_BUBBLE:
            compute = TwoPartCompute
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
            recomputed=self._recomputed(net.graph),
        )

    def _recomputed(self, graph: LayerGraph) -> frozenset[int]:
        """Return the layers of a net that run forward again before they run backward."""
        trains = graph.phase == pb.TRAIN and self.grid.stages > 1
        if not self.staging or not trains or not self.param.pipeline_param.recompute:
            return frozenset()
        return run_again(self.staging.of_layers, self.staging.rule)

    def _collectives(self, net: Net, device: torch.device) -> MpiFcOperator | None:
        """Return the operator that exchanges the blobs of split layers."""
        if self.grid.shards == 1:
            return None
        if self.param.fc_param.scheme == PEER:
            return Peer(net, device, self._pieces, partial(self.batches.shares_of_replica, net.graph.phase))
        return MasterSlave(net, device, self._pieces)

    def slices(self, net: Net, segments: Sequence[Segment], device: torch.device = CPU) -> WeightSlices:
        """Return what this rank updates of the parameters of ``net`` that ranks divide; a collective call."""
        if not self.divides_update:
            return NO_SLICES
        buckets = [bucket for group in self.groups(net, segments) for bucket in group if bucket.comm.size > 1]
        where = CPU if self.param.update == pb.ParallelParameter.HOST else device
        places = {comm: places_by_host(comm) for comm in dict.fromkeys(bucket.comm for bucket in buckets)}
        return WeightSlices(WeightSlice(p, b.comm.rank, places[b.comm], where) for b in buckets for p in b.parameters)

    def exchange(
        self, net: Net, segments: Sequence[Segment], device: torch.device = CPU, slices: WeightSlices = NO_SLICES
    ) -> Exchange:
        """Return the exchange that sums the gradients of ``net``, cut into ``segments``; a collective call."""
        name = pb.ParallelParameter.Exchange.Name(self.param.exchange)
        make = EXCHANGES[f"sharded {name}" if self.divides_update else name]
        replicas = Replicas(self.grid.replicas, self.grid.replica, partial(self.batches.weight_of, net.graph))
        return make(self.groups(net, segments), self.comm_thread, device, self.param, self.codec, replicas, slices)

    @cached_property
    def codec(self) -> Codec | None:
        """The codec of gradients, which all exchanges share, because it stores residuals."""
        param = self.param.compression_param
        return CODECS[param.name](param) if param.name else None

    def groups(self, net: Net, segments: Sequence[Segment]) -> list[list[Bucket]]:
        """Return the parameters of ``net`` whose gradients each of ``segments`` completes."""
        return self.parameters.groups(net, segments)

    def status(self, signals: SignalActions | None) -> Status:
        """Return the status by which all ranks share the loss and signals of an iteration; a collective call."""
        if self.is_delayed:
            return DelayedStatus(self.grid.world, signals, self.grid.stages - 1)
        return Status(self.grid.world, self.comm_thread, signals)

    @property
    def is_delayed(self) -> bool:
        """Whether gradients are delayed between the stages."""
        return self.staging is not None and self.staging.rule == pb.PipelineParameter.DELAYED

    def any_in_step(self, own: bool) -> bool:
        """Return whether a condition holds on any rank that updates with this one; a collective call.

        These are all ranks or, if stages run ahead of each other, the ranks of this replica's stage: other replicas see
        non-finite numbers in the summed gradients.
        """
        comm = self.grid.across_shards if self.is_delayed else self.grid.world
        if comm.size == 1:
            return own
        count = torch.tensor([own], dtype=torch.float64)
        comm.Allreduce(count.numpy())
        return count.item() > 0

    def close(self, failed: bool = False) -> None:
        """End the communication thread and free all communicators; a collective call, unless something ``failed``."""
        if not failed:
            self.comm_thread.wait()
        self.comm_thread.close()
        if self._links:
            self._links.close(failed)
        self._pieces.close(failed)
        if not failed:
            self.parameters.close()
            self.batches.close()
            self.grid.Free()

    @cached_property
    def described(self) -> str:
        """The parallelisation as one line of text."""
        names = [pb.ParallelParameter.Exchange.Name(self.param.exchange)]
        if self.codec:
            between = self.param.compression_param.links == pb.CompressionParameter.BETWEEN_HOSTS
            names.append(f"codec {self.param.compression_param.name}{' between hosts' * between}")
        if self.param.transport == pb.ParallelParameter.TORCH_DISTRIBUTED:
            names.append("sums by torch.distributed")
        if self.param.divides_update:
            names.append(f"update {pb.ParallelParameter.Update.Name(self.param.update)}")
        names.append(f"balance {pb.ParallelParameter.Balance.Name(self.param.balance)}")
        if self.grid.shards > 1:
            pieces = f" in {self.param.fc_param.pieces} pieces" if self.param.fc_param.pieces > 1 else ""
            names.append(f"model-parallel layers {pb.FcParameter.Scheme.Name(self.param.fc_param.scheme)}{pieces}")
        if self.staging and self.staging.of_kinds:
            rule = pb.PipelineParameter.GPIPE if self.staging.gathers else self.param.pipeline_param.schedule
            cuts = (self.param.pipeline_param.micro_batches,)
            names.append(f"{replace(self.staging, rule=rule, cuts=cuts)}")
        elif self.staging:
            names.append(str(self.staging))
        return f"{self.grid}; {', '.join(names)}"
