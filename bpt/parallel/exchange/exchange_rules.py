"""The rules of gradient exchange: which settings combine with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

CGDP, TREE, MODEL = pb.ParallelParameter.CGDP, pb.ParallelParameter.TREE, pb.CgdpParameter.MODEL
PARAM = "cgdp_param"
TORCH_DISTRIBUTED = pb.ParallelParameter.TORCH_DISTRIBUTED
_NOT_BY_TORCH: Mapping[int, str] = {
    TREE: "exchange: TREE sums them on one rank, which may read the other GPUs' memory itself",
    CGDP: "exchange: CGDP sums them in memory that the ranks of a host share",
    pb.ParallelParameter.LOCAL: "exchange: LOCAL averages weights",
}
"""Exchange → why torch.distributed's sums are of no use to it."""


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why ``plan`` cannot exchange gradients as it says."""
    parallel, chunks = plan.parallel_param, plan.parallel_param.cgdp_param
    yield from _transport(plan)
    if plan.is_outer and parallel.gradient_exchange != CGDP:
        return
    if parallel.gradient_exchange == CGDP and chunks.chunking == MODEL and parallel.depth > 1:
        yield Violation(
            (PARALLEL, PARAM, "chunking"),
            "chunking: MODEL measures all layers on each rank, which has some of them with num_stages: "
            f"{parallel.depth}",
            "set chunk_size, or leave chunking out",
        )
    for field, least in (("chunk_size", 0), ("step", 1), ("range", 1), ("interval", 1)):
        yield from check_range(chunks, field, PARALLEL, PARAM, least=least)
    if chunks.chunking == MODEL and chunks.chunk_size:
        yield Violation(
            (PARALLEL, PARAM, "chunk_size"),
            f"chunk_size: {chunks.chunk_size} makes chunks of one size, but chunking: MODEL chooses them by itself",
            "leave one of them out",
        )


def _transport(plan: RunPlan) -> Iterator[Violation]:
    parallel = plan.parallel_param
    if parallel.transport != TORCH_DISTRIBUTED:
        return
    field, instead = (PARALLEL, "transport"), "leave out transport, or use exchange: ALLREDUCE or RING"
    if plan.is_outer:
        yield Violation(
            field,
            "transport: TORCH_DISTRIBUTED is for sums of all ranks in step, and under exchange: {exchange} workers "
            "submit weights one by one",
            instead,
            exchange=pb.ParallelParameter.Exchange.Name(parallel.exchange),
        )
    elif reason := _NOT_BY_TORCH.get(parallel.exchange):
        yield Violation(field, f"transport: TORCH_DISTRIBUTED sums gradients of all ranks, and {reason}", instead)
    if name := parallel.compression_param.name:
        yield Violation(
            field,
            f"transport: TORCH_DISTRIBUTED sums numbers, and codec: {name} makes others of them on their way",
            "leave out one of them",
        )
    if parallel.fault_param.spares or parallel.fault_param.copies:
        yield Violation(
            field,
            "transport: TORCH_DISTRIBUTED ends with the first rank that is lost, so that spares and copies have no use",
            "leave out transport, or spares and copies",
        )


def violations_of_launcher(plan: RunPlan, by_torch: bool, tolerant: bool) -> Iterator[Violation]:
    """Yield why ranks that have been started so cannot exchange gradients as ``plan`` says.

    Args:
        by_torch: whether torchrun has started them, so that they have no MPI.
        tolerant: whether the job outlives its ranks.
    """
    if tolerant and plan.parallel_param.fault_param.heals and plan.parallel_param.transport == TORCH_DISTRIBUTED:
        yield Violation(
            (PARALLEL, "transport"),
            "transport: TORCH_DISTRIBUTED ends with the first rank that is lost, and mpirun --with-ft ulfm lets the "
            "others continue",
            "leave out transport, or start without --with-ft, or set fault_param { on_loss: STOP }",
        )
    if by_torch and plan.given(PARALLEL, "transport") and plan.parallel_param.transport == pb.ParallelParameter.MPI:
        yield Violation(
            (PARALLEL, "transport"),
            "transport: MPI: torchrun has started the ranks, and they have no MPI",
            "start them with mpirun, or leave out transport",
        )


def can_sum_by_torch(plan: RunPlan) -> bool:
    """Return whether torch.distributed can sum the gradients of ``plan``."""
    param = plan.parallel_param
    return (
        not plan.is_outer
        and param.exchange not in _NOT_BY_TORCH
        and not (param.compression_param.name or param.divides_update or param.is_unlike)
    )


def ignored_settings(plan: RunPlan) -> Iterator[IgnoredSetting]:
    """Yield the settings of chunks that are not made or not searched, and those of trees."""
    parallel, chunks = plan.parallel_param, plan.parallel_param.cgdp_param
    in_step = not plan.is_outer or parallel.node_ranks > parallel.num_stages
    if (parallel.gradient_exchange != TREE or not in_step) and plan.given(PARALLEL, "tree_param"):
        yield IgnoredSetting((PARALLEL, "tree_param"), f"without {'worker_' * plan.is_outer}exchange: TREE")
    if parallel.gradient_exchange != CGDP or not in_step:
        if plan.given(PARALLEL, PARAM):
            name = pb.ParallelParameter.Exchange.Name(parallel.exchange)
            without = f"without {'worker_' * plan.is_outer}exchange: CGDP"
            yield IgnoredSetting((PARALLEL, PARAM), without if in_step else f"with exchange: {name}")
        return
    for field in ("choice", "step", "range", "interval"):
        if not plan.given(PARALLEL, PARAM, field):
            continue
        if chunks.chunk_size:
            yield IgnoredSetting((PARALLEL, PARAM, field), "with chunk_size: nothing is searched")
        elif chunks.chunking == MODEL and field in ("step", "range"):
            yield IgnoredSetting((PARALLEL, PARAM, field), "with chunking: MODEL: the cost model says what is tried")
