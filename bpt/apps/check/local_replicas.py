"""What one process makes of ``exchange: LOCAL``: it trains all replicas in turn, each a net of its own, and averages.

Nothing here sends or receives: what is compared with it is how ranks do the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bpt.apps.check.faults import AnyFault
from bpt.base.errors import UserError
from bpt.config.plan.run_plan import LocalSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.share import Share
from bpt.graph.staging import Staging
from bpt.nn.layers import LAYERS
from bpt.nn.layers.base import batch_of
from bpt.nn.net_graph import build_graph_of
from bpt.train.runtime.batch_sharing import ReplicaShare
from bpt.train.runtime.binding import bind
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.state.train_state import Blob, TrainState, blob_of

LOCAL = pb.ParallelParameter.LOCAL
_UNHEARD = logging.Logger("bpt, unheard")  # nobody wants to read of each replica
_UNHEARD.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class LocalReplica:
    """What updates by itself: a replica or, with ``sum_within_hosts``, those of a host.

    Attributes:
        share: of a batch that the text says has so many samples.
        part: of all that is trained, by which it counts.
        ranks: that divide its share.
    """

    share: Callable[[int], Share]
    part: float
    ranks: int


@dataclass(frozen=True)
class LocalRun:
    """How the ranks divide what they train.

    Attributes:
        learners: in order of their first ranks.
        micro_batches: into which each rank's share is cut, where that counts; see Staging.
        gathers: see Staging.
        ranks, keeps_batches, unweighted, factor: see ReplicaShare, and Parallel's ``batch_factor``.
    """

    learners: tuple[LocalReplica, ...]
    micro_batches: tuple[int, ...]
    gathers: frozenset[int]
    ranks: int
    keeps_batches: bool
    unweighted: bool
    factor: int

    @classmethod
    def of(cls, runtime: Runtime, faults: Sequence[AnyFault] = ()) -> LocalRun | None:
        """Of ranks that train by LOCAL, ``None`` where nothing is averaged; a collective call.

        Raises:
            UserError: one process cannot do the same.
        """
        parallel = runtime.parallel
        if parallel.param.exchange != LOCAL or runtime.exchange.local is None:
            return None
        _check(runtime.graph, parallel, faults)
        each = parallel.batches.samples.size // parallel.grid.replicas
        hosts = parallel.grid.world.allgather(parallel.grid.world.host)
        together = [[replica] for replica in range(parallel.grid.replicas)]
        if parallel.param.local_param.sum_within_hosts:
            together = [[rank for rank, own in enumerate(hosts) if own == host] for host in dict.fromkeys(hosts)]
        counts = [share.count for share in parallel.batches.shares(batch_of(runtime.graph))]
        if parallel.batches.unweighted:
            counts = [1] * len(counts)
        learners = []
        for replicas in together:
            ranks = [replica * each + rank for replica in replicas for rank in range(each)]
            part = sum(counts[rank] for rank in ranks) / sum(counts)
            learners.append(LocalReplica(_joined(parallel, ranks), part, len(ranks)))
        staging = parallel.staging
        return cls(
            tuple(learners),
            staging.cuts if staging else (),
            staging.gathers if staging else frozenset(),
            parallel.batches.samples.size,
            parallel.batches.keeps_batches,
            parallel.batches.unweighted,
            parallel.batches.batch_factor,
        )


def _joined(parallel: Parallel, ranks: Sequence[int]) -> Callable[[int], Share]:
    return lambda samples: Share.joined([parallel.batches.shares(samples)[rank] for rank in ranks])


def _check(graph: LayerGraph, parallel: Parallel, faults: Sequence[AnyFault]) -> None:
    """Refuse what one process, which has one replica after the other, cannot know."""
    if faults:
        raise UserError(
            "exchange: LOCAL goes on without a lost replica's own weights, which one process still has; "
            "--kill, --stop, --slow and --drop-link are for the other exchanges"
        )
    if parallel.param.balance == pb.ParallelParameter.DYNAMIC:
        raise UserError(
            "exchange: LOCAL with balance: DYNAMIC weighs replicas by speeds that were measured, which do not come "
            "again; add --set 'parallel_param { balance: UNIFORM }'"
        )
    for node in graph.nodes:
        layer = LAYERS[node.type]
        reason = layer.counts_by_data(node.spec)
        if layer.syncs(node.spec, parallel.param.sync_batch_norm):
            reason = "it normalises by the batches of all ranks (sync)"
        if reason:
            raise node.spec.error(
                f"{reason}; one process trains the replicas of exchange: LOCAL one after the other: only a copy of the "
                "net without that can be compared"
            )


def train_in_turn(
    plan: RunPlan,
    local: LocalSpec,
    run: LocalRun,
    state: TrainState | None,
    iterations: int,
    device: torch.device,
    begin: Callable[[Runtime], object],
    note: Callable[[Runtime], object],
) -> Mapping[Blob, Tensor]:
    """Return the weights of the first learner after ``iterations``.

    Args:
        plan: of one process.
        state: after the iterations in which gradients are summed; ``None``: there are none.
        begin: called with each learner's runtime before it trains.
        note: called with the first one's before each of its updates.
    """
    with ExitStack() as stack:
        runtimes = []
        for learner in run.learners:
            share = ReplicaShare(learner.share, run.ranks, run.keeps_batches, run.unweighted)
            staging = _staging(plan, run, learner)
            options = TrainOptions(device, batch_factor=run.factor, staging=staging, replica_share=share, log=_UNHEARD)
            runtime = stack.enter_context(bind(plan, state, None, options))
            runtime.updater.before_update.append(partial(_scale, runtime, learner.part))
            begin(runtime)
            runtimes.append(runtime)
        runtimes[0].updater.before_update.append(lambda loss: note(runtimes[0]))
        for done in range(runtimes[0].iteration + 1, iterations + 1):
            for runtime in runtimes:
                runtime.iterate()
            if (done - local.start_iter) % local.steps == 0:
                _average(runtimes, [learner.part for learner in run.learners], local.momentum)
        return {blob: value.clone() for blob, value in runtimes[0].state().weights.items()}


def _staging(plan: RunPlan, run: LocalRun, learner: LocalReplica) -> Staging | None:
    """Return the ranks' parts of a learner's share one behind the other, where a layer normalises by them."""
    graph = build_graph_of(plan.train)
    cuts = (learner.ranks, *run.micro_batches)
    if all(cut == 1 for cut in cuts) or not any(LAYERS[n.type].normalises_by_batch(n.spec) for n in graph.nodes):
        return None
    return Staging.alone(graph, cuts, run.gathers)


@torch.no_grad()
def _scale(runtime: Runtime, part: float, loss: float) -> None:
    """Let gradients be those of the mean loss of the samples of a learner."""
    for value in map(runtime.net.value, runtime.net.held):
        if value.grad is not None and part:
            value.grad /= part


@torch.no_grad()
def _average(runtimes: Sequence[Runtime], parts: Sequence[float], momentum: int) -> None:
    optim, nets = runtimes[0].plan.optim, [runtime.net for runtime in runtimes]
    states = [runtime.state() for runtime in runtimes]
    for param in nets[0].held:
        if not nets[0].value(param).requires_grad:
            continue
        _mix([net.value(param) for net in nets], parts)
        blob = blob_of(nets[0].graph, param)
        columns = list(zip(*(state.moments[blob] for state in states), strict=True))
        for number, column in enumerate(columns):
            if momentum == pb.LocalParameter.AVERAGE or (optim.averages and number == len(columns) - 1):
                _mix(column, parts)
            elif momentum == pb.LocalParameter.RESET:
                for moment in column:
                    moment.zero_()


def _mix(tensors: Sequence[Tensor], parts: Sequence[float]) -> None:
    mean = torch.stack([tensor * part for tensor, part in zip(tensors, parts, strict=True)]).sum(0)
    for tensor in tensors:
        tensor.copy_(mean)
