"""The rules of ``exchange: LOCAL``: which settings combine with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

LOCAL = pb.ParallelParameter.LOCAL
PARAM = "local_param"
_FORGETTING = ("SGD", "Nesterov")
"""The rules whose moments may begin at 0 at any time: others divide by what they have seen since iteration 0."""


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why replicas of ``plan`` cannot update by themselves."""
    parallel, local = plan.parallel_param, plan.parallel_param.local_param
    if parallel.exchange != LOCAL:
        return
    yield from check_range(local, "steps", PARALLEL, PARAM, least=1)
    yield from check_range(local, "start_iter", PARALLEL, PARAM, least=0)
    if parallel.is_delayed:
        yield Violation(
            (PARALLEL, "exchange"),
            "exchange: LOCAL averages the weights of one iteration, and under schedule: DELAYED stages are at "
            "different ones",
            "use another schedule, or exchange: ALLREDUCE",
        )
    if name := parallel.compression_param.name:
        yield Violation(
            (PARALLEL, "compression_param", "codec"),
            f"codec: {name} is for gradients of each iteration, and exchange: LOCAL sends weights every few iterations",
            "leave it out and set more local_param { steps }, or use exchange: ALLREDUCE",
        )
    if local.momentum == pb.LocalParameter.RESET and plan.optim.type not in _FORGETTING:
        yield Violation(
            (PARALLEL, PARAM, "momentum"),
            f"momentum: RESET is for SGD and Nesterov: {plan.optim.type} divides by moments that it has gathered since "
            "iteration 0, and its steps would be too large without them",
            "use momentum: AVERAGE or KEEP",
        )
    if local.sum_within_hosts and parallel.replica_ranks > 1:
        yield Violation(
            (PARALLEL, PARAM, "sum_within_hosts"),
            "sum_within_hosts: true is for replicas of one rank each: those of several may be on more than one host",
            "leave it out, or set num_stages: 1 and num_shards: 1",
        )


def ignored_settings(plan: RunPlan) -> Iterator[IgnoredSetting]:
    """Yield the settings of averages that are not made."""
    if plan.parallel_param.exchange != LOCAL and plan.given(PARALLEL, PARAM):
        yield IgnoredSetting((PARALLEL, PARAM), "without exchange: LOCAL")
