"""Train on all ranks and on one process from the same start, and compare the weights."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.apps.check.delayed_reference import DelayedUpdates, delays_of
from bpt.apps.check.faults import AnyFault, check_happened, drop_links, injected
from bpt.apps.check.local_replicas import LocalRun, train_in_turn
from bpt.base.errors import PrototxtError
from bpt.base.log import columns
from bpt.config.plan.run_plan import CompressionSpec, ParallelSpec, RunPlan
from bpt.config.precision import FLOAT64, Precision
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph, Param
from bpt.graph.staging import Staging
from bpt.nn.layers import LAYERS
from bpt.parallel.balance.divisible_batches import is_dividable
from bpt.system.comm.base import Communicator
from bpt.train.runtime.binding import bind
from bpt.train.runtime.healing import hosts_of, run_with_recovery, start
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.state.train_state import Blob, TrainState, blob_of

LOG = logging.getLogger("bpt")


Tensors = tuple[Mapping[Blob, Tensor], Mapping[Blob, Tensor]]
"""The gradients and the values of all parameters."""


@dataclass(frozen=True)
class TensorDifference:
    """The largest difference between a tensor of many ranks and the same tensor of one process."""

    absolute: float
    size: float  # the largest element on one process

    @property
    def relative(self) -> float:
        """The difference relative to the largest element; differences of small elements are rounding."""
        return self.absolute / self.size if self.size else (float("inf") if self.absolute else 0.0)

    @classmethod
    def of(cls, tensor: Tensor, reference: Tensor) -> TensorDifference:
        """Return the difference of two tensors; NaN in either is an infinite difference."""
        if not tensor.numel():
            return cls(0.0, 0.0)
        absolute = (tensor.double() - reference.double()).abs().max().item()
        return cls(float("inf") if math.isnan(absolute) else absolute, reference.abs().max().item())


@dataclass(frozen=True)
class Compared:
    """The differences of a parameter: of its gradient in the first iteration, and of its values after the last.

    Attributes:
        name: layer and number of the parameter.
        gradient: ``None`` if the rank that had it is lost.
        weight: the difference of the values.
        excepted: why the parameter may differ; "": it may not.
    """

    name: str
    gradient: TensorDifference | None
    weight: TensorDifference
    excepted: str = ""

    def within(self, tolerance: float) -> bool:
        """Return whether the differences are at most ``tolerance``, or excepted."""
        known = (each.relative for each in (self.gradient, self.weight) if each)
        return bool(self.excepted) or max(known) <= tolerance


def compare(
    plan: RunPlan,
    device: torch.device,
    world: Communicator,
    iterations: int,
    precision: Precision = FLOAT64,
    faults: Sequence[AnyFault] = (),
) -> tuple[list[Compared], Communicator]:
    """Train ``iterations`` iterations on ``world`` and on rank 0 alone; a collective call.

    This tests nothing and writes nothing. Both runs compute in contiguous layout unless the solver says otherwise.
    ``schedule: DELAYED`` applies gradients of earlier iterations: the one process trains the whole net and applies
    them as late. A codec is switched off, because it rounds on purpose. ``exchange: LOCAL`` is compared with one
    process that trains all replicas in turn.

    Args:
        plan: the plan of the run.
        device: the device of this rank.
        world: the ranks to compare with one process.
        iterations: the number of iterations.
        precision: the precision of both runs; it overrides the solver's. Roundings differ with the division of the
            batch. In float32 they grow from iteration to iteration and look like mistakes; in float64 they do not.
        faults: faults of ranks and links during the run. The remaining ranks continue, and are compared.

    Returns:
        The differences of each trained parameter on the first remaining rank (empty on others); the remaining ranks.

    Raises:
        PrototxtError: the plan promises no curve of one process.
    """
    if plan.parallel_param.balance_param.follows_noise:
        raise PrototxtError(
            "parallel_param: batch { rule: NOISE_SCALE } sees the noise of the ranks' gradients, so one process would "
            "train other batches, and there is nothing to compare; set rule: FIXED to check the rest",
            plan.origin("parallel_param", "balance_param", "batch", "rule"),
        )
    plan = replace(plan.training_only(), asked_precision=precision)
    if codec := plan.parallel_param.compression_param.name:
        LOG.info("Comparing without codec: %s, which changes gradients on purpose", codec)
        plan = plan.with_parallel(compression_param=CompressionSpec())
    options = TrainOptions(device)
    drop_links(world, faults)
    run = start(plan, world, options)
    conditions = _Conditions.of(run) if isinstance(run, Runtime) else None
    in_turn = LocalRun.of(run, faults) if isinstance(run, Runtime) else None
    seed, replicas, staging, delays = world.bcast(conditions)  # a spare rank may become one that compares
    gradients: dict[Blob, Tensor] = {}
    weights: dict[Blob, Tensor] = {}
    on_ranks: Tensors = gradients, weights

    def work(runtime: Runtime) -> None:
        with injected(runtime, faults):
            weights.update(_train(runtime, iterations, gradients, delays))

    with run_with_recovery(run, hosts_of(world), options, work) as run:
        world = run.group.everyone
    check_happened(faults, world.world_ranks)
    if world.rank:
        return [], world
    LOG.info("Now the same on one process%s", ", which applies gradients as late" if delays else "")
    if staging and plan.parallel_param.depth > 1:
        LOG.info("It runs the same %d micro-batches, because BatchNorm normalises by them", staging.micro_batches)
    reference = replace(plan.with_seed(seed), parallel_param=ParallelSpec(), notes=())
    noted: dict[Blob, Tensor] = {}
    local = plan.parallel_param.local_param
    summed = min(local.start_iter, iterations) if in_turn else iterations
    with bind(reference, None, None, TrainOptions(device, batch_factor=replicas, staging=staging)) as runtime:
        if delays:
            DelayedUpdates(runtime, delays, plan.parallel_param.corrects_delays)
        on_one = noted, _train(runtime, summed, noted, delays)
        if in_turn and summed < iterations:
            state, note = runtime.state().copy() if summed else None, partial(_note, noted)
            settings = plan.parallel_param
            on_one = noted, train_in_turn(reference, settings, in_turn, state, iterations, device, _settle, note)
        return list(_compared(runtime.net.graph, on_ranks, on_one)), world


class _Conditions(NamedTuple):
    """The settings by which one process computes the same as many ranks.

    Attributes:
        delays: the number of iterations by which the gradients of each layer are late; empty if none are.
    """

    seed: int
    replicas: int
    staging: Staging | None
    delays: Mapping[str, int]

    @classmethod
    def of(cls, runtime: Runtime) -> _Conditions:
        """Return the conditions of the training ranks."""
        parallel = runtime.parallel
        delays = delays_of(parallel.staging) if parallel.staging and parallel.param.is_delayed else {}
        staging = _sequential_staging(parallel, runtime.graph)
        return cls(runtime.seed, parallel.batches.batch_factor, staging, delays)


def _sequential_staging(parallel: Parallel, graph: LayerGraph) -> Staging | None:
    """Return the micro-batches by which one process computes the same as the ranks; ``None`` if any division does.

    If batches cannot be divided, or if BatchNorm normalises by micro-batches, the batch of each rank is one.
    """
    if parallel.grid.replicas > 1 and not is_dividable(graph):
        _check_sequential(graph, parallel.param.sync_batch_norm)
        return Staging.alone(graph, (parallel.grid.replicas,))
    staging, ranks = parallel.staging, parallel.batches.number
    by_batch = [node for node in graph.nodes if LAYERS[node.type].normalises_by_batch(node.spec)]
    over_batch = parallel.param.pipeline_param.batch_norm_over == pb.PipelineParameter.BATCH
    if not by_batch or over_batch or staging is None or staging.micro_batches == 1:
        return None
    for node in by_batch:
        if ranks > 1 and LAYERS[node.type].syncs(node.spec, parallel.param.sync_batch_norm):
            raise node.spec.error(
                f"it normalises each micro-batch by the samples of all {ranks} ranks that have some (sync), but one "
                "process has no such micro-batches; compare with pipeline_param { batch_norm_over: BATCH } or "
                "micro_batches: 1"
            )
    return Staging.alone(graph, (ranks, *staging.cuts), staging.gathers)


def _check_sequential(graph: LayerGraph, sync: bool) -> None:
    """Refuse nets whose whole batches of all ranks one process cannot train in sequence."""
    for node in graph.nodes:
        layer = LAYERS[node.type]
        reason = "" if layer.within_batch else layer.counts_by_data(node.spec)
        if layer.syncs(node.spec, sync):
            reason = "it normalises by the batches of all ranks (sync)"
        if reason:
            raise node.spec.error(
                f"{reason}; the batches cannot be divided, so one process would count batch by batch, but the ranks "
                "count over all batches; compare a copy of the net without that"
            )


def _train(
    runtime: Runtime, iterations: int, gradients: dict[Blob, Tensor], delays: Mapping[str, int]
) -> Mapping[Blob, Tensor]:
    """Train; return the whole weights on rank 0. Put the whole gradients of the first batch into ``gradients``."""
    _settle(runtime)
    observers = runtime.updater.before_update
    observers.append(lambda loss: _note(gradients, runtime, delays))
    runtime.run(min(max(delays.values(), default=0) + 1, iterations) - runtime.iteration)
    observers.pop()  # update: HOST updates early only if nobody observes the gradients
    runtime.run(iterations - runtime.iteration)
    return _whole(runtime, runtime.state().weights)


def _settle(runtime: Runtime) -> None:
    """Fix the memory format, because memory formats round differently."""
    if runtime.plan.engine == pb.SolverParameter.AUTO:
        runtime.load(replace(runtime.state(), tuned={"engine": (pb.SolverParameter.CONTIGUOUS,)}))


def _note(gradients: dict[Blob, Tensor], runtime: Runtime, delays: Mapping[str, int] = MappingProxyType({})) -> None:
    """Put the whole gradients of the first batch into ``gradients``, when each layer applies them."""
    if runtime.iteration <= max(delays.values(), default=0):
        net = runtime.net
        values = {blob_of(net.graph, param): net.value(param) for param in net.local_params}
        summed = {blob: runtime.exchange.gradient(value) for blob, value in values.items()}
        own = {blob: torch.zeros_like(values[blob]) if each is None else each for blob, each in summed.items()}
        whole = _whole(runtime, own)
        gradients.update({blob: each for blob, each in whole.items() if delays.get(blob[0], 0) == runtime.iteration})


def _whole(runtime: Runtime, own: Mapping[Blob, Tensor]) -> Mapping[Blob, Tensor]:
    """Gather the parameters, or gradients, of the ranks of the first replica on rank 0."""
    parallel, graph = runtime.parallel, runtime.net.graph
    if parallel.grid.replica:
        return {}
    state = TrainState(runtime.iteration, runtime.seed, own)
    dtype = runtime.plan.precision.master
    whole = state.gathered(graph, parallel.grid.in_replica, parallel.parts(graph), dtype)
    return whole.weights if whole else {}


def trained(graph: LayerGraph) -> list[Param]:
    """Return the parameters that a solver changes."""
    return [param for param in graph.learnable if param.learnable and param.lr_mult]


def _compared(graph: LayerGraph, on_ranks: Tensors, on_one: Tensors) -> Iterator[Compared]:
    for param in trained(graph):
        blob = blob_of(graph, param)
        # The rank that had the gradients of the first iteration may be lost.
        gradient = TensorDifference.of(on_ranks[0][blob], on_one[0][blob]) if on_ranks[0] else None
        weight = TensorDifference.of(on_ranks[1][blob], on_one[1][blob])
        yield Compared(f"{blob[0]}/{blob[1]}", gradient, weight, _excepted(graph, param))


def _excepted(graph: LayerGraph, param: Param) -> str:
    """Return why a parameter's values are rounding noise; "" if they are not."""
    node = graph.nodes[param.layer]
    reader = graph.edges[node.tops[0]].consumer if node.tops else None
    if param.blob == LAYERS[node.type].bias_blob and reader is not None:
        after = graph.nodes[reader]
        if LAYERS[after.type].normalises_by_batch(after.spec):
            return f'it is a bias before {after.type} "{after.name}"; its true gradient is 0, and the rest is rounding'
    return ""


def result_lines(compared: Sequence[Compared], tolerance: float) -> Iterator[str]:
    """Yield the table of ``bpt check``."""
    head: tuple[str, ...] = ("parameter", "gradient: absolute", "relative", "weight: absolute", "relative", "")
    rows = [head]
    for line in compared:
        both = (line.gradient, line.weight)
        numbers = (
            f"{value:.1e}" if d else "lost" for d in both for value in ((d.absolute, d.relative) if d else (0, 0))
        )
        verdict = "excepted" if line.excepted else "ok" if line.within(tolerance) else "DIFFERS"
        rows.append((line.name, *numbers, verdict))
    yield from columns(rows, left=1)
    for line in compared:
        if line.excepted:
            yield f"{line.name} is excepted: {line.excepted}"
