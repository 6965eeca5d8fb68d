"""What can be said of lost ranks, and when it says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.violation import PARALLEL, Unused, Violation, beyond

if TYPE_CHECKING:
    from bpt.plan.spec import RunPlan

PARAM = "fault_param"


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Why ``plan`` cannot go on without a rank as it says."""
    fault = plan.parallel_param.fault_param
    for field, least in (("min_ranks", 1), ("copies", 0), ("copy_interval", 1), ("timeout", 0)):
        yield from beyond(fault, field, PARALLEL, PARAM, least=least)
    if fault.copies > 1:
        yield Violation(
            (PARALLEL, PARAM, "copies"),
            f"copies: {fault.copies}: a rank's state is copied to one other rank",
            "set copies: 1",
        )


def unused(plan: RunPlan) -> Iterator[Unused]:
    """What is set of healing where nothing heals."""
    fault = plan.parallel_param.fault_param
    if plan.is_outer and plan.given(PARALLEL, PARAM):
        yield Unused((PARALLEL, PARAM), "with SGWU, AGWU and ASGD, which go on without a worker that is lost")
        return
    for field in ("min_ranks", "copies", "copy_interval"):
        if not fault.heals and plan.given(PARALLEL, PARAM, field):
            yield Unused((PARALLEL, PARAM, field), "with on_loss: STOP")
    if fault.heals and not fault.copies and plan.given(PARALLEL, PARAM, "copy_interval"):
        yield Unused((PARALLEL, PARAM, "copy_interval"), "without copies: 1")
