"""Train all replicas of ``exchange: LOCAL`` in turn on one process, each as a net of its own, and average them.

This code sends and receives nothing; ``bpt check`` compares the ranks with it.
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
from bpt.config.plan.run_plan import OuterSpec, ParallelSpec, RunPlan
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
_UNHEARD = logging.Logger("bpt, unheard")  # drops the log lines of each replica
_UNHEARD.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class LocalReplica:
    """A unit with its own weights: a replica or, with ``sum_within_hosts``, the replicas of a host.

    Attributes:
        share: returns its share of a batch of the given number of samples.
        part: its fraction of all samples, which is its weight in the mean.
        ranks: the number of ranks that divide its share.
    """

    share: Callable[[int], Share]
    part: float
    ranks: int


@dataclass(frozen=True)
class LocalRun:
    """The division of training among the ranks.

    Attributes:
        replicas: the replicas, by their first ranks.
        micro_batches: the cuts of each rank's share, if they change the result; as in Staging.
        gathers: as in Staging.
        ranks, keeps_batches, unweighted: as in ReplicaShare.
        factor: Parallel's ``batch_factor``.
    """

    replicas: tuple[LocalReplica, ...]
    micro_batches: tuple[int, ...]
    gathers: frozenset[int]
    ranks: int
    keeps_batches: bool
    unweighted: bool
    factor: int

    @classmethod
    def of(cls, runtime: Runtime, faults: Sequence[AnyFault] = ()) -> LocalRun | None:
        """Return the division of ranks that train by LOCAL; ``None`` if nothing is averaged; a collective call.

        Raises:
            UserError: one process cannot compute the same.
        """
        parallel = runtime.parallel
        if parallel.param.exchange != LOCAL or runtime.exchange.local is None:
            return None
        _check(runtime.graph, parallel, faults)
        each = parallel.batches.number // parallel.grid.replicas
        hosts = parallel.grid.world.allgather(parallel.grid.world.host)
        groups = [[replica] for replica in range(parallel.grid.replicas)]
        if parallel.param.local_param.sum_within_hosts:
            groups = [[rank for rank, own in enumerate(hosts) if own == host] for host in dict.fromkeys(hosts)]
        counts = [share.count for share in parallel.batches.shares(batch_of(runtime.graph))]
        if parallel.batches.unweighted:
            counts = [1] * len(counts)
        replicas = []
        for group in groups:
            ranks = [replica * each + rank for replica in group for rank in range(each)]
            part = sum(counts[rank] for rank in ranks) / sum(counts)
            replicas.append(LocalReplica(_joined(parallel, ranks), part, len(ranks)))
        staging = parallel.staging
        return cls(
            tuple(replicas),
            staging.cuts if staging else (),
            staging.gathers if staging else frozenset(),
            parallel.batches.number,
            parallel.batches.keeps_batches,
            parallel.batches.unweighted,
            parallel.batches.batch_factor,
        )


def _joined(parallel: Parallel, ranks: Sequence[int]) -> Callable[[int], Share]:
    return lambda samples: Share.joined([parallel.batches.shares(samples)[rank] for rank in ranks])


def _check(graph: LayerGraph, parallel: Parallel, faults: Sequence[AnyFault]) -> None:
    """Refuse settings whose results depend on more than one replica at a time."""
    if faults:
        raise UserError(
            "exchange: LOCAL continues without the weights of a lost replica, but one process still has them; "
            "--kill, --stop, --slow and --drop-link are for the other exchanges"
        )
    if parallel.param.balance == pb.ParallelParameter.DYNAMIC:
        raise UserError(
            "exchange: LOCAL with balance: DYNAMIC weights replicas by measured speeds, which differ from run to run; "
            "add --set 'parallel_param { balance: UNIFORM }'"
        )
    for node in graph.nodes:
        layer = LAYERS[node.type]
        reason = layer.counts_by_data(node.spec)
        if layer.syncs(node.spec, parallel.param.sync_batch_norm):
            reason = "it normalises by the batches of all ranks (sync)"
        if reason:
            raise node.spec.error(
                f"{reason}; one process trains the replicas of exchange: LOCAL one after the other; compare a copy of "
                "the net without that"
            )


def train_in_turn(
    plan: RunPlan,
    settings: ParallelSpec,
    run: LocalRun,
    state: TrainState | None,
    iterations: int,
    device: torch.device,
    begin: Callable[[Runtime], object],
    note: Callable[[Runtime], object],
) -> Mapping[Blob, Tensor]:
    """Train all replicas in turn, and return the weights of the first one after ``iterations``.

    Args:
        plan: the plan of one process.
        settings: the settings of LOCAL.
        run: the division of training.
        state: the state after the iterations that sum gradients; ``None``: there are none.
        iterations: the number of the last iteration.
        device: the device of this process.
        begin: called with each replica's runtime before it trains.
        note: called with the first replica's runtime before each of its updates.
    """
    with ExitStack() as stack:
        runtimes = []
        for replica in run.replicas:
            share = ReplicaShare(replica.share, run.ranks, run.keeps_batches, run.unweighted)
            staging = _staging(plan, run, replica)
            options = TrainOptions(device, batch_factor=run.factor, staging=staging, replica_share=share, log=_UNHEARD)
            runtime = stack.enter_context(bind(plan, state, None, options))
            runtime.updater.before_update.append(partial(_scale, runtime, replica.part))
            begin(runtime)
            runtimes.append(runtime)
        runtimes[0].updater.before_update.append(lambda loss: note(runtimes[0]))
        local, parts = settings.local_param, [replica.part for replica in run.replicas]
        outer = _OuterStep(settings.outer_param, runtimes)
        for done in range(runtimes[0].iteration + 1, iterations + 1):
            for runtime in runtimes:
                runtime.iterate()
            if (done - local.start_iter) % local.steps == 0:
                _average(runtimes, parts, local.momentum)
                outer.apply()
        return {blob: value.clone() for blob, value in runtimes[0].state().weights.items()}


def _staging(plan: RunPlan, run: LocalRun, replica: LocalReplica) -> Staging | None:
    """Return the parts of a replica's share as micro-batches, if a layer normalises by them."""
    graph = build_graph_of(plan.train)
    cuts = (replica.ranks, *run.micro_batches)
    if all(cut == 1 for cut in cuts) or not any(LAYERS[n.type].normalises_by_batch(n.spec) for n in graph.nodes):
        return None
    return Staging.alone(graph, cuts, run.gathers)


@torch.no_grad()
def _scale(runtime: Runtime, part: float, loss: float) -> None:
    """Scale gradients to those of the mean loss of a replica's own samples."""
    for value in map(runtime.net.value, runtime.net.local_params):
        if value.grad is not None and part:
            value.grad /= part


@torch.no_grad()
def _average(runtimes: Sequence[Runtime], parts: Sequence[float], momentum: int) -> None:
    optim, nets = runtimes[0].plan.optim, [runtime.net for runtime in runtimes]
    states = [runtime.state() for runtime in runtimes]
    for param in nets[0].local_params:
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


class _OuterStep:
    """DiLoCo's step from the weights that all replicas have had towards their average."""

    def __init__(self, param: OuterSpec, runtimes: Sequence[Runtime]) -> None:
        self._param = param
        nets = [runtime.net for runtime in runtimes] if param.name else []
        self._values = [[net.value(param) for net in nets] for param in nets[0].local_params] if nets else []
        self._values = [column for column in self._values if column[0].requires_grad]
        self._versions = [column[0].detach().clone() for column in self._values]
        self._momenta = [torch.zeros_like(version) for version in self._versions]

    @torch.no_grad()
    def apply(self) -> None:
        for column, version, momentum in zip(self._values, self._versions, self._momenta, strict=True):
            change = column[0] - version
            momentum.mul_(self._param.momentum).add_(change)
            version.add_(momentum * self._param.momentum + change, alpha=self._param.lr)
            for value in column:
                value.copy_(version)


def _mix(tensors: Sequence[Tensor], parts: Sequence[float]) -> None:
    mean = torch.stack([tensor * part for tensor, part in zip(tensors, parts, strict=True)]).sum(0)
    for tensor in tensors:
        tensor.copy_(mean)
