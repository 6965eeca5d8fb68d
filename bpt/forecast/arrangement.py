"""Who has what: the ranks of a plan on the nodes of a cluster, as training would arrange them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bpt.balance.batch_shares import Static, fastest
from bpt.balance.speed import SpeedFunction
from bpt.errors import PrototxtError
from bpt.exchange.codec import CODECS
from bpt.execute.split_pass import Block
from bpt.graph import model_parallel
from bpt.graph.layer_graph import LayerGraph, Param
from bpt.graph.part import slice_bounds
from bpt.graph.segments import Segment, trained_layers
from bpt.graph.transfers import Transfer, transfers
from bpt.optim.rules import remembered
from bpt.plan.cutting import last_segments, segments_of
from bpt.plan.spec import RunPlan
from bpt.plan.stage_placement import stage
from bpt.plan.staging import Staging
from bpt.predict.costs import Costs
from bpt.proto import bpt_pb2 as pb
from bpt.schedule.chunks import chunks
from bpt.schedule.cluster import Cluster, Node

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
PEER = pb.FcParameter.PEER
CGDP = pb.ParallelParameter.CGDP
LARGE = 2**18  # elements of a parameter that is a message of its own, see exchange/buckets.py
MOVED = 3  # how often a pass goes through memory as large as all parameters: forward, and twice backward
_OF_SAMPLES = 0.1  # the least part of what a layer was measured to take that goes with its samples
CHUNKS = 4  # that CGDP is taken to cut the net into, where a search is to find the number


@dataclass(frozen=True)
class Arrangement:
    """The ranks of a plan.

    Sharers are those who have samples of their own: a rank a stage each. Under PEER the shards of a stage are of
    different sharers, under MASTER_SLAVE the sharer's rank is the master.

    Attributes:
        plan, costs, cluster: of what, and on what.
        staging: which stage runs which layers; ``None``: there is one.
    """

    plan: RunPlan
    costs: Costs
    cluster: Cluster
    staging: Staging | None = None

    @property
    def graph(self) -> LayerGraph:
        """Of the training net."""
        return self.costs.graph

    @property
    def stages(self) -> int:
        """Of each pipeline."""
        return self.plan.parallel_param.num_stages

    @property
    def shards(self) -> int:
        """Of each stage."""
        return self.plan.parallel_param.num_shards

    @property
    def is_peer(self) -> bool:
        """Whether shards have samples of their own."""
        return self.plan.parallel_param.fc_param.scheme == PEER

    @property
    def size(self) -> int:
        """Ranks of the job."""
        return len(self.cluster.hosts)

    @property
    def replicas(self) -> int:
        """Of the net."""
        return self.size // self.plan.parallel_param.replica_ranks

    @cached_property
    def ranks(self) -> Ints:
        """(stages, shards, replicas): the rank that is there."""
        grid = np.arange(self.size, dtype=np.int64).reshape(self.replicas, self.stages, self.shards)
        found: Ints = grid.transpose(1, 2, 0)
        return found

    @cached_property
    def sharers(self) -> Ints:
        """(stages, sharers): the rank of each stage that runs a sharer's samples, in the order of their shares."""
        found: Ints = self.ranks[:, 0, :]
        if self.is_peer:
            found = self.ranks.transpose(0, 2, 1).reshape(self.stages, -1)
        return found

    def _of_nodes(self, what: Callable[[Node], float]) -> Floats:
        """(ranks,) what is true of the node of each."""
        return np.array(self.cluster.of_ranks(what))

    @cached_property
    def speeds(self) -> Floats:
        """(ranks,): samples a second of the whole net."""
        return self._of_nodes(lambda node: node.speed)

    @cached_property
    def overheads(self) -> Floats:
        """(ranks,): seconds of a pass, whatever its samples."""
        return self._of_nodes(lambda node: node.overhead)

    @cached_property
    def update(self) -> Floats:
        """(ranks,) seconds in which each would update all parameters: as nodes say, else by the costs."""
        nodes = self._of_nodes(lambda node: node.update)
        return np.where(nodes > 0, nodes, self._within_passes * self.passes)

    @cached_property
    def borders(self) -> tuple[Floats, Floats]:
        """(ranks,) each: seconds that a sample of a pass takes for each segment beside the first, and a pass whatever
        its samples."""
        return self._of_nodes(lambda node: node.border), self._of_nodes(lambda node: node.border_overhead)

    @cached_property
    def crowd(self) -> Floats:
        """(ranks,) how many share a core with each, itself among them, while all compute."""
        return self._of_nodes(lambda node: node.crowd)

    @cached_property
    def noise(self) -> Floats:
        """(ranks,) the standard deviation of each one's times, as a part of these."""
        return self._of_nodes(lambda node: node.noise)

    @cached_property
    def interference(self) -> Floats:
        """(ranks,) seconds that computing takes longer for each byte of gradients that is summed meanwhile."""
        return self._of_nodes(lambda node: node.interference)

    @cached_property
    def pace(self) -> tuple[Floats, Floats]:
        """(ranks,) each: seconds of a pass of the whole net whatever its samples, and of each sample; no update."""
        own = self._within_passes
        whole = self.overheads + self.costs.batch / self.speeds - own
        return np.maximum(self.overheads - own, 0.0), np.minimum(1 / self.speeds, whole / self.costs.batch)

    @property
    def _within_passes(self) -> Floats:
        """(ranks,) seconds of an update that the nodes' overheads and speeds hold, for each pass."""
        whole = self.overheads + self.costs.batch / self.speeds
        apart = self._of_nodes(lambda node: node.update) > 0
        return np.where(apart, 0.0, self.costs.update / self.costs.work * whole)

    @cached_property
    def coding(self) -> Floats:
        """(ranks,) seconds in which each codes a number of its gradients: as nodes say, else by what its update takes,
        as both wait for memory."""
        param = self.plan.parallel_param.compression_param
        nodes = self._of_nodes(lambda node: dict(node.coding).get(param.codec, 0.0))
        numbers = sum(cost.trained for cost in self.costs.layers) / self.plan.precision.master.itemsize
        passes = CODECS[param.name](param).passes / self._moved_by_update
        found: Floats = np.where(nodes > 0, nodes, self.update / numbers * passes)
        return found

    @property
    def codes_on_hosts(self) -> bool:
        """Whether the codec is for links within hosts, too; there CGDP adds up in memory."""
        parallel = self.plan.parallel_param
        return parallel.compression_param.links == pb.CompressionParameter.ALL and parallel.exchange != CGDP

    @property
    def passes(self) -> int:
        """Of an iteration."""
        return max(self.plan.optim.iter_size, 1)

    @cached_property
    def batch(self) -> int:
        """Samples of a pass, of all ranks together."""
        multiplies = self.plan.parallel_param.batch_scope == pb.ParallelParameter.REPLICA
        return self.costs.batch * (self.replicas if multiplies else 1)

    @cached_property
    def work(self) -> tuple[Floats, Floats]:
        """(layers,) forward and backward: the part of a sample's work, beside what goes to parameters."""
        known = self.moving.any()  # or else what measured layers take goes with their samples
        moved = known * self.costs.update / self.costs.work * MOVED / self._moved_by_update * self.weights
        forward, backward = self.costs.forward, self.costs.backward
        forward = np.maximum(forward - moved / MOVED, _OF_SAMPLES * forward)
        backward = np.maximum(backward - moved * (MOVED - 1) / MOVED, _OF_SAMPLES * backward)
        whole = float(forward.sum() + backward.sum())
        return forward / whole, backward / whole

    @cached_property
    def weights(self) -> Floats:
        """(layers,) the part of all trained parameters."""
        trained = np.array([cost.trained for cost in self.costs.layers])
        found: Floats = trained / (trained.sum() or 1.0)
        return found

    @cached_property
    def moving(self) -> Floats:
        """(ranks,) seconds of a pass in which all parameters are read forward and backward, and their gradients are
        written, whatever the samples: as memory has it that the update waits for."""
        return np.minimum(self.pace[0], self.update * MOVED / self._moved_by_update)

    @property
    def _moved_by_update(self) -> int:
        """How often it goes through memory as large as all parameters: it reads all of it, and writes all but the
        gradient."""
        return 3 + 2 * remembered(self.plan.optim)

    def of_stages(self, parts: Floats) -> Floats:
        """(stages,) what ``parts`` (layers,) come to in each."""
        found = np.zeros(self.stages)
        np.add.at(found, np.asarray(self.of_layers, dtype=np.int64), parts)
        return found

    @cached_property
    def shares(self) -> Ints:
        """(sharers,): samples of a pass."""
        number, balance = self.sharers.shape[1], self.plan.parallel_param.balance
        if balance == pb.ParallelParameter.UNIFORM or number == 1:
            return np.array([stop - start for start, stop in slice_bounds(self.batch, number)])
        # The slowest stage tells how fast a pipeline is.
        once, each = self.pace
        work = self.of_stages(np.add(*self.work))[:, None]
        weights = self.of_stages(self.weights)[:, None]
        per_sample = (work * each[self.sharers]).max(axis=0)
        moving = self.moving + self.update / self.passes
        fixed = (work * (once - self.moving)[self.sharers] + weights * moving[self.sharers]).max(axis=0)
        functions = [
            SpeedFunction((0, 1, self.batch + 1), (0.0, once + each, once + each * (self.batch + 1)))
            for once, each in zip(fixed.tolist(), per_sample.tolist(), strict=True)
        ]
        if balance == pb.ParallelParameter.STATIC:
            return np.array([share.count for share in Static(functions).shares(self.batch, number)])
        counts = _quickly_divided(per_sample, self.batch) if not fixed.any() else fastest(functions, self.batch)
        return _one_at_least(np.asarray(counts))

    @cached_property
    def micro_batches(self) -> int:
        """In which a share travels."""
        return self.staging.micro_batches if self.staging else 1

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """As training cuts the net."""
        param = self.plan.parallel_param
        lengths: tuple[int, ...] = ()
        if param.exchange == CGDP and self.size > 1:
            layers = len(trained_layers(self.graph))
            size = param.cgdp_param.chunk_size or -(-layers // CHUNKS)
            lengths = chunks(layers, size)
        return segments_of(self.graph, param, self.staging, self.size > 1, lengths)

    @cached_property
    def of_layers(self) -> tuple[int, ...]:
        """The stage of each layer."""
        return self.staging.stages(self.graph) if self.staging else (0,) * len(self.graph)

    @cached_property
    def split(self) -> frozenset[int]:
        """The layers of which each shard has a slice."""
        nodes = model_parallel.split_layers(self.graph) if self.shards > 1 else ()
        return frozenset(node.index for node in nodes)

    @cached_property
    def stage_of(self) -> tuple[int, ...]:
        """The stage of each segment."""
        return tuple(self.of_layers[segment.start] for segment in self.segments)

    @cached_property
    def flows(self) -> tuple[Transfer, ...]:
        """What crosses between stages."""
        return transfers(self.graph, self.segments, self.stage_of) if self.staging else ()

    @cached_property
    def blocks(self) -> dict[int, Block]:
        """Segment → the block of split layers that it is."""
        if self.shards == 1:
            return {}
        scheme = self.plan.parallel_param.fc_param.scheme
        stages = self.of_layers if self.staging else ()
        starts = {segment.start: segment.index for segment in self.segments}
        return {starts[block.start]: block for block in model_parallel.blocks(self.graph, scheme, stages)}

    @cached_property
    def exchanged(self) -> dict[int, Exchanged]:
        """Segment → what of its gradients is summed, once it has run backward."""
        last = last_segments(self.graph, self.segments)
        itemsize, found = self.plan.precision.wire.itemsize, {}
        own_of: defaultdict[int, list[Param]] = defaultdict(list)
        for param in self.graph.learnable:
            if param.lr_mult:
                own_of[last[param.index]].append(param)
        for segment in self.segments:
            own = own_of[segment.index]
            whole = [p.shape for p in own if p.layer not in self.split]
            slices = [(p.shape[0] / self.slices, *p.shape[1:]) for p in own if p.layer in self.split]
            if own:
                found[segment.index] = Exchanged(
                    sum(map(math.prod, whole)) * itemsize,
                    _messages([math.prod(shape) for shape in whole]),
                    sum(map(math.prod, slices)) * itemsize,
                    _messages([math.prod(shape) for shape in slices]),
                    self._coded(whole, itemsize),
                    self._coded(slices, itemsize),
                    sum(size for size in map(math.prod, whole) if size < LARGE) * itemsize,
                )
        return found

    def _coded(self, shapes: Sequence[Sequence[float]], itemsize: int) -> float | None:
        param = self.plan.parallel_param.compression_param
        if not param.name:
            return None
        codec = CODECS[param.name](param)
        return sum(codec.coded_bytes(shape, itemsize) for shape in shapes)

    @property
    def slices(self) -> int:
        """Into which split layers are cut."""
        return self.shards if self.is_peer else max(self.shards - 1, 1)

    @cached_property
    def parameters(self) -> float:
        """Bytes of all of them, of which a stage updates those that it holds."""
        return sum(cost.parameters for cost in self.costs.layers)

    @cached_property
    def held(self) -> tuple[float, ...]:
        """Of each stage, bytes of parameters on its fullest rank, and of what training keeps for them."""
        found = [0.0] * self.stages
        for index, cost in enumerate(self.costs.layers):
            cut = self.slices if index in self.split and self.is_peer else 1
            found[self.of_layers[index]] += cost.parameters / cut
        return tuple(found)


@dataclass(frozen=True)
class Exchanged:
    """Bytes of gradients on each rank, and messages in which they go: of whole parameters, and of slices.

    Attributes:
        coded, coded_slices: bytes that stand for them where they go by a codec; ``None``: there is none.
        packed: bytes of those whole ones that travel together.
    """

    whole: float
    messages: int
    slices: float = 0.0
    slice_messages: int = 0
    coded: float | None = None
    coded_slices: float | None = None
    packed: float = 0.0

    @property
    def summed(self) -> float:
        """Bytes that are added up."""
        coded = self.whole if self.coded is None else self.coded
        return coded + (self.slices if self.coded_slices is None else self.coded_slices)


def _messages(elements: Sequence[float]) -> int:
    """Large parameters go by themselves, the others together."""
    large = sum(each >= LARGE for each in elements)
    return large + (large < len(elements))


def _quickly_divided(per_sample: Floats, total: int) -> Ints:
    """Shares in proportion to speeds, by largest remainders; as good as ``fastest`` where times have no fixed part."""
    ideal = total / per_sample / (1 / per_sample).sum()
    counts: Ints = np.floor(ideal).astype(np.int64)
    order = np.argsort((counts + 1) * per_sample, kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def _one_at_least(counts: Ints) -> Ints:
    """As DYNAMIC has it."""
    if counts.sum() >= len(counts):
        for idle in np.flatnonzero(counts == 0):
            counts[counts.argmax()] -= 1
            counts[idle] = 1
    return counts


def arranged(plan: RunPlan, costs: Costs, cluster: Cluster) -> Arrangement:
    """The ranks of a plan on a cluster, with stages placed as training places them.

    Raises:
        PrototxtError: the net cannot be placed on so many stages.
    """
    found = Arrangement(plan, costs, cluster)
    if found.size % plan.parallel_param.replica_ranks:
        raise PrototxtError(f"{found.size} ranks are not a multiple of {plan.parallel_param.replica_ranks}")
    staging = stage(plan, costs.graph, found.replicas) if found.stages > 1 else None
    return Arrangement(plan, costs, cluster, staging)
