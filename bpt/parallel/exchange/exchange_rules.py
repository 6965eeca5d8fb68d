"""The rules of gradient exchange: which settings combine with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

CGDP, TREE, MODEL = pb.ParallelParameter.CGDP, pb.ParallelParameter.TREE, pb.CgdpParameter.MODEL
PARAM = "cgdp_param"


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why ``plan`` cannot exchange gradients as it says."""
    parallel, chunks = plan.parallel_param, plan.parallel_param.cgdp_param
    if plan.is_outer and parallel.gradient_exchange != CGDP:
        return
    if parallel.gradient_exchange == CGDP and chunks.chunking == MODEL and parallel.num_stages > 1:
        yield Violation(
            (PARALLEL, PARAM, "chunking"),
            "chunking: MODEL measures all layers on each rank, which has some of them with num_stages: "
            f"{parallel.num_stages}",
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
