"""The arrangement of a plan's ranks on the nodes of a cluster, as training would arrange them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bpt.base.errors import PrototxtError
from bpt.base.log import plural
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.split_pass import SplitBlock
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import slice_bounds
from bpt.graph.segments import Segment, trained_layers
from bpt.graph.stages import run_again
from bpt.graph.staging import Staging
from bpt.graph.transfers import Transfer, transfers
from bpt.parallel.balance.batch_shares import Static, fastest
from bpt.parallel.balance.speed import SpeedFunction
from bpt.parallel.cgdp.chunks import chunks
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.model_parallel import model_parallel
from bpt.parallel.pipeline.stage_placement import stage_kinds
from bpt.perf.forecast.gradient_messages import GradientMessages, gradient_messages
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.rank_links import Floats, Ints
from bpt.perf.forecast.rank_speeds import RankSpeeds
from bpt.train.runtime.cutting import segments_of

_PEER = pb.FcParameter.PEER
_CGDP = pb.ParallelParameter.CGDP
CHUNKS = 4  # number of CGDP's chunks that a forecast assumes if the run will find it by a search


@dataclass(frozen=True)
class Arrangement:
    """The ranks of a plan, their layers and their samples.

    A data-parallel rank has samples of its own. Under PEER every shard is a data-parallel rank, under MASTER_SLAVE only
    the master is one.

    If replicas have different numbers of stages, ``kinds`` has an Arrangement for each kind of them. Its arrays of
    ranks, of shares and of stages are those of its replicas. Otherwise the only kind is the arrangement itself.

    Attributes:
        plan: the plan to arrange.
        costs: the costs of its layers.
        cluster: the nodes that run it.
        stagings: the stage of each layer, for each kind of replica; empty: there is one stage.
        kind: the number of this kind of replica.
        parent: the arrangement of all kinds; ``None``: this one.
        given_shares: samples of each data-parallel rank; by default the plan's balance divides them.
    """

    plan: RunPlan
    costs: NetCosts
    cluster: Cluster
    stagings: tuple[Staging, ...] = ()
    kind: int = 0
    parent: Arrangement | None = field(default=None, repr=False)
    given_shares: tuple[int, ...] = ()

    @cached_property
    def kinds(self) -> tuple[Arrangement, ...]:
        """The arrangement of each kind of replica."""
        number = len(self.layout.kinds)
        return (self,) if number == 1 else tuple(replace(self, kind=kind, parent=self) for kind in range(number))

    @cached_property
    def layout(self) -> ReplicaLayout:
        """The replicas of all kinds."""
        return self.plan.parallel_param.layout(self.size)

    @property
    def staging(self) -> Staging | None:
        """The stage of each layer in replicas of this kind; ``None``: there is one stage."""
        return self.stagings[self.kind] if self.stagings else None

    @property
    def graph(self) -> LayerGraph:
        """The training net."""
        return self.costs.graph

    @property
    def stages(self) -> int:
        """The number of stages of each pipeline of this kind."""
        return self.layout.kinds[self.kind]

    @property
    def shards(self) -> int:
        """The number of shards of each stage."""
        return self.plan.parallel_param.num_shards

    @property
    def is_peer(self) -> bool:
        """Whether every shard has samples of its own."""
        return self.plan.parallel_param.fc_param.scheme == _PEER

    @property
    def size(self) -> int:
        """The number of ranks of the job."""
        return len(self.cluster.hosts)

    @cached_property
    def _replicas(self) -> Ints:
        """(replicas,) the numbers of the replicas of this kind."""
        return np.flatnonzero(np.array(self.layout.stages) == self.stages)

    @cached_property
    def ranks(self) -> Ints:
        """(stages, shards, replicas) the rank at each position of the grid."""
        first = np.array(self.layout.first_ranks, dtype=np.int64)[self._replicas]
        places = np.arange(self.stages * self.shards, dtype=np.int64).reshape(self.stages, self.shards, 1)
        found: Ints = first + places
        return found

    @cached_property
    def data_ranks(self) -> Ints:
        """(stages, shares) the data-parallel ranks of each stage, in the order of their shares of the batch."""
        found: Ints = self.ranks[:, 0, :]
        if self.is_peer:
            found = self.ranks.transpose(0, 2, 1).reshape(self.stages, -1)
        return found

    @cached_property
    def speeds(self) -> RankSpeeds:
        """The speeds of all ranks."""
        return self.parent.speeds if self.parent else RankSpeeds(self.plan, self.costs, self.cluster)

    @property
    def passes(self) -> int:
        """The passes of an iteration."""
        return max(self.plan.optim.iter_size, 1)

    @cached_property
    def batch(self) -> int:
        """The samples of a pass of all ranks together."""
        multiplies = self.plan.parallel_param.batch_scope == pb.ParallelParameter.REPLICA
        return self.costs.batch * (self.layout.replicas if multiplies else 1)

    @cached_property
    def recomputed(self) -> frozenset[int]:
        """The segments that run forward again before they run backward."""
        if self.staging is None or self.stages == 1 or not self.plan.parallel_param.pipeline_param.recompute:
            return frozenset()
        return run_again(self.stage_of, self.staging.rule)

    @property
    def holds_one(self) -> bool:
        """Whether a stage holds the activations of one micro-batch, and only the inputs of others."""
        if self.staging is None or self.staging.gathers or self.staging.rule == pb.PipelineParameter.ZERO_BUBBLE:
            return False
        return self.stages > 1 and self.plan.parallel_param.pipeline_param.recompute

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of a share."""
        return self.staging.micro_batches if self.staging else 1

    @cached_property
    def all_shares(self) -> Ints:
        """(all shares,) the samples of a pass of each data-parallel rank, of all kinds of replicas."""
        if self.given_shares:
            return np.array(self.given_shares)
        number, balance = sum(kind.data_ranks.shape[1] for kind in self.kinds), self.plan.parallel_param.balance
        if balance == pb.ParallelParameter.UNIFORM or number == 1:
            return np.array([stop - start for start, stop in slice_bounds(self.batch, number)])
        per_sample, fixed = np.empty(number), np.empty(number)
        for kind in self.kinds:
            per_sample[kind.share_numbers], fixed[kind.share_numbers] = kind.pass_seconds
        functions = [
            SpeedFunction((0, 1, self.batch + 1), (0.0, once + each, once + each * (self.batch + 1)))
            for once, each in zip(fixed.tolist(), per_sample.tolist(), strict=True)
        ]
        if balance == pb.ParallelParameter.STATIC:
            return np.array([share.count for share in Static(functions).shares(self.batch, number)])
        counts = _divide_by_speed(per_sample, self.batch) if not fixed.any() else fastest(functions, self.batch)
        return ensure_one_each(np.asarray(counts))

    @cached_property
    def share_numbers(self) -> Ints:
        """(shares,) the numbers of the shares of this kind of replica among all shares."""
        group = self.shards if self.is_peer else 1
        found: Ints = (self._replicas[:, None] * group + np.arange(group)).ravel()
        return found

    @cached_property
    def shares(self) -> Ints:
        """(shares,) the samples of a pass of each data-parallel rank."""
        found: Ints = (self.parent or self).all_shares[self.share_numbers]
        return found

    @property
    def pass_seconds(self) -> tuple[Floats, Floats]:
        """(shares,) seconds of a sample and of a pass, on the slowest stage, which determines a pipeline's speed."""
        speeds = self.speeds
        once, each = speeds.pass_seconds
        work = self._sum_by_stage(np.add(*speeds.layer_work))[:, None]
        parameters = self._sum_by_stage(speeds.layer_parameters)[:, None]
        for_parameters = speeds.parameter_seconds + speeds.update / self.passes
        fixed = work * (once - speeds.parameter_seconds)[self.data_ranks]
        fixed = (fixed + parameters * for_parameters[self.data_ranks]).max(axis=0)
        return (work * each[self.data_ranks]).max(axis=0), fixed

    def _sum_by_stage(self, of_layers: Floats) -> Floats:
        """Return (stages,) the sums over the layers of each stage."""
        found = np.zeros(self.stages)
        np.add.at(found, np.asarray(self.stage_of_layer, dtype=np.int64), of_layers)
        return found

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The segments into which training cuts the net."""
        param = self.plan.parallel_param
        lengths: tuple[int, ...] = ()
        if param.exchange == _CGDP and self.size > 1:
            size = param.cgdp_param.chunk_size or usual_chunk_size(self.graph)
            lengths = chunks(len(trained_layers(self.graph)), size)
        return segments_of(self.graph, param, self.staging, self.size > 1, lengths)

    @cached_property
    def stage_of_layer(self) -> tuple[int, ...]:
        """The stage of each layer."""
        return self.staging.stages(self.graph) if self.staging else (0,) * len(self.graph)

    @cached_property
    def stage_of(self) -> tuple[int, ...]:
        """The stage of each segment."""
        return tuple(self.stage_of_layer[segment.start] for segment in self.segments)

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """The blobs that travel between stages."""
        return transfers(self.graph, self.segments, self.stage_of) if self.staging else ()

    @cached_property
    def split(self) -> frozenset[int]:
        """The layers of which each shard has a slice."""
        nodes = model_parallel.split_layers(self.graph) if self.shards > 1 else ()
        return frozenset(node.index for node in nodes)

    @property
    def slices(self) -> int:
        """The number of slices of a split layer."""
        return self.shards if self.is_peer else max(self.shards - 1, 1)

    @cached_property
    def blocks(self) -> dict[int, SplitBlock]:
        """The blocks of split layers, by segment."""
        if self.shards == 1:
            return {}
        scheme = self.plan.parallel_param.fc_param.scheme
        stages = self.stage_of_layer if self.staging else ()
        starts = {segment.start: segment.index for segment in self.segments}
        return {starts[block.start]: block for block in model_parallel.blocks(self.graph, scheme, stages)}

    @cached_property
    def gradients(self) -> dict[int, GradientMessages]:
        """The gradients that are summed after a segment's backward pass, by segment."""
        return gradient_messages(self.plan, self.graph, self.segments, self.split, self.slices)

    @property
    def codes_on_hosts(self) -> bool:
        """Whether links within hosts use the codec, too; CGDP sums in memory there, without a codec."""
        parallel = self.plan.parallel_param
        return parallel.compression_param.links == pb.CompressionParameter.ALL and parallel.exchange != _CGDP

    @cached_property
    def parameter_bytes(self) -> float:
        """Bytes of all parameters, with their gradients and history."""
        return sum(cost.parameters for cost in self.costs.layers)

    @cached_property
    def stage_parameter_bytes(self) -> tuple[float, ...]:
        """Bytes of each stage's parameters, gradients and history, on the rank that has most of them."""
        found = [0.0] * self.stages
        for index, cost in enumerate(self.costs.layers):
            cut = self.slices if index in self.split and self.is_peer else 1
            found[self.stage_of_layer[index]] += cost.parameters / cut
        return tuple(found)


def usual_chunk_size(graph: LayerGraph) -> int:
    """Return the trained layers of each of CGDP's chunks in forecasts, if the run will find them by a search."""
    return -(-len(trained_layers(graph)) // CHUNKS)


def _divide_by_speed(per_sample: Floats, total: int) -> Ints:
    """Return shares in proportion to speeds, rounded by largest remainders.

    They are as good as the shares of ``fastest`` if times have no fixed part.
    """
    ideal = total / per_sample / (1 / per_sample).sum()
    counts: Ints = np.floor(ideal).astype(np.int64)
    order = np.argsort((counts + 1) * per_sample, kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def ensure_one_each(counts: Ints) -> Ints:
    """Give each share at least one sample, if there are enough, as DYNAMIC does."""
    if counts.sum() >= len(counts):
        for idle in np.flatnonzero(counts == 0):
            counts[counts.argmax()] -= 1
            counts[idle] = 1
    return counts


def arrange(plan: RunPlan, costs: NetCosts, cluster: Cluster) -> Arrangement:
    """Arrange the ranks of a plan on a cluster, with stages placed as training places them.

    Raises:
        PrototxtError: the net cannot be placed on so many stages.
    """
    layout = plan.parallel_param.layout(len(cluster.hosts))
    if layout.size != len(cluster.hosts):
        raise PrototxtError(f"{plural(len(cluster.hosts), 'rank')} do not form the replicas of {layout}")
    return Arrangement(plan, costs, cluster, stage_kinds(plan, costs.graph, layout))
