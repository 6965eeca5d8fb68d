"""The rules of a divided update: which settings combine with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.violation import PARALLEL, Violation
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

_Parallel = pb.ParallelParameter
FIELD = (PARALLEL, "update")


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why ranks cannot divide the update of ``plan``."""
    parallel, name = plan.parallel_param, _Parallel.Update.Name(plan.parallel_param.update)
    if not parallel.divides_update:
        return
    if plan.is_outer:
        yield Violation(
            FIELD,
            f"update: {name} divides the update of ranks in step, and under exchange: {{exchange}} workers submit "
            "whole weights",
            "leave out update",
            exchange=_Parallel.Exchange.Name(parallel.exchange),
        )
        return
    if parallel.exchange == _Parallel.TREE:
        why = f"update: {name} divides moments among the ranks, and with exchange: TREE one rank updates all parameters"
        yield Violation(FIELD, why, "leave out update, or use exchange: RING")
    elif parallel.exchange == _Parallel.LOCAL:
        why = (
            f"update: {name} needs the gradients of all ranks, and with exchange: LOCAL each replica updates by its own"
        )
        yield Violation(FIELD, why, "leave out update, or use exchange: ALLREDUCE")
    if codec := parallel.compression_param.name:
        yield Violation(
            FIELD,
            f"update: {name} sums slices of gradients, and codec: {codec} codes whole ones, with a residual on each "
            "rank",
            "leave out one of them",
        )
    if parallel.transport == _Parallel.TORCH_DISTRIBUTED and plan.given(PARALLEL, "transport"):
        yield Violation(
            FIELD,
            f"update: {name} sums slices from the host's memory, and transport: TORCH_DISTRIBUTED whole gradients",
            "leave out one of them",
        )
    if parallel.is_delayed:
        yield Violation(
            FIELD,
            f"update: {name} gathers weights between two iterations, and with schedule: DELAYED there is always a "
            "batch under way, by weights of another age",
            "use schedule: ONE_F_ONE_B",
        )
    for field in ("debug_info", "snapshot_diff"):
        if getattr(plan, field):
            yield Violation(
                (field,),
                f"{field}: true shows whole gradients and updates, and with update: {name} no rank has them",
                "leave out one of them",
            )
