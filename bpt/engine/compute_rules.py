"""Rules of the inner layer and of layers that are split over ranks: what they can be combined with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.caller import set_in_solver
from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

ENGINE = (PARALLEL, "inner_param", "engine")
TASK_DAG, AUTO = pb.InnerParameter.TASK_DAG, pb.InnerParameter.AUTO


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why ``plan`` cannot compute as it says."""
    parallel = plan.parallel_param
    if parallel.num_shards > 1 and plan.debug_info:
        yield Violation(
            ("debug_info",),
            "debug_info: true looks at every layer, and those that are split over ranks (num_shards) are nowhere whole",
        )
    yield from check_range(parallel.fc_param, "pieces", PARALLEL, "fc_param", least=1)
    yield from check_range(
        parallel.inner_param,
        "num_threads",
        PARALLEL,
        "inner_param",
        least=0,
        hint=" (0: the node's cores divided by its ranks)",
    )


def violations_on_gpu(plan: RunPlan) -> Iterator[Violation]:
    """Yield why a GPU cannot compute as ``plan`` says."""
    if plan.parallel_param.inner_param.engine == TASK_DAG:
        yield Violation(
            ENGINE,
            "engine: TASK_DAG divides work among the threads of a CPU",
            f"{set_in_solver('solver_mode: CPU')}, or leave it out",
        )


def ignored_settings(plan: RunPlan, on_gpu: bool) -> Iterator[IgnoredSetting]:
    """Yield the settings of the inner layer and of split layers that have no effect.

    Args:
        on_gpu: the plan's rank computes on a GPU.
    """
    parallel = plan.parallel_param
    if parallel.num_shards == 1 and plan.given(PARALLEL, "fc_param"):
        yield IgnoredSetting((PARALLEL, "fc_param"), "without num_shards above 1")
    if parallel.inner_param.engine == AUTO and on_gpu:
        yield IgnoredSetting(ENGINE, "on a GPU", "inner_param { engine: AUTO } is LIBRARY on a GPU")
