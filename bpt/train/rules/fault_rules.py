"""The rules for the settings of fault tolerance: which are invalid, and which have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

PARAM = "fault_param"


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield the reasons why ``plan`` cannot continue without a lost rank."""
    fault = plan.parallel_param.fault_param
    for field in ("copies", "timeout", "spares", "memory_snapshot"):
        yield from check_range(fault, field, PARALLEL, PARAM, least=0)
    for field in ("min_ranks", "copy_interval"):
        yield from check_range(fault, field, PARALLEL, PARAM, least=1)
    if fault.copies > 1:
        yield Violation(
            (PARALLEL, PARAM, "copies"),
            f"copies: {fault.copies}: a rank's state is copied to one other rank",
            "set copies: 1",
        )


def violations_of_spares(plan: RunPlan, ranks: int, tolerant: bool) -> Iterator[Violation]:
    """Yield the reasons why ``spares`` of the ``ranks`` cannot replace lost ranks.

    Args:
        tolerant: whether the job survives the loss of a rank.
    """
    spares = plan.parallel_param.fault_param.spares
    field, stated = (PARALLEL, PARAM, "spares"), f"spares: {spares} of {ranks} ranks"
    if not tolerant:
        yield Violation(
            field,
            f"{stated} would wait for nothing, since the job ends with the first rank that is lost",
            "start it with mpirun --with-ft ulfm, or leave out spares",
        )
    if ranks - spares < 2:
        yield Violation(
            field,
            f"{stated} leaves {max(ranks - spares, 0)} to train, and at least 2 must: one must outlive the other",
            f"start at least {spares + 2} ranks",
        )


def ignored_settings(plan: RunPlan) -> Iterator[IgnoredSetting]:
    """Yield the settings of healing that have no effect, because the run does not heal."""
    fault = plan.parallel_param.fault_param
    if plan.is_outer:
        name = pb.ParallelParameter.Exchange.Name(plan.parallel_param.exchange)
        for field in ("on_loss", "min_ranks", "copies", "copy_interval", "memory_snapshot", "spares"):
            if plan.given(PARALLEL, PARAM, field):
                why = f"with exchange: {name}, whose server continues without a lost worker"
                yield IgnoredSetting((PARALLEL, PARAM, field), why)
        return
    for field in ("min_ranks", "copies", "copy_interval", "spares"):
        if not fault.heals and plan.given(PARALLEL, PARAM, field):
            yield IgnoredSetting((PARALLEL, PARAM, field), "with on_loss: STOP")
    if fault.heals and not fault.copies and plan.given(PARALLEL, PARAM, "copy_interval"):
        yield IgnoredSetting((PARALLEL, PARAM, "copy_interval"), "without copies: 1")
