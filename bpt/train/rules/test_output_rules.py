"""The rules for the test output that ``snapshot_best`` and ``early_stopping_param`` use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpt.base.violation import Violation, check_range
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.graph.layer_spec import count

PARAM = "early_stopping_param"


def field_of(plan: RunPlan) -> tuple[str, ...]:
    """Return the field that names the output."""
    return (PARAM, "output") if plan.stops_early and plan.early_stopping_param.output else ("snapshot_best",)


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield missing and contradictory settings that do not depend on the nets."""
    param = plan.early_stopping_param
    yield from check_range(plan, "max_snapshots", least=0)
    if plan.stops_early:
        yield from check_range(param, "patience", PARAM, least=1)
        yield from check_range(param, "min_delta", PARAM, least=0)
        if not plan.judged_by:
            yield Violation((PARAM,), "output is not set", "name an output of a test net", about=PARAM)
        if param.output and plan.snapshot_best not in ("", param.output):
            why = f'output is "{param.output}", and snapshot_best "{plan.snapshot_best}"'
            yield Violation((PARAM, "output"), why, "name one output")
    if plan.judged_by and not (plan.test_interval and plan.test_iter):
        why = f'{field_of(plan)[-1]} is "{plan.judged_by}", but nothing is tested while training'
        yield Violation(field_of(plan), why, "set test_iter and test_interval")


def violations_of_net(plan: RunPlan, tests: Sequence[LayerGraph]) -> Iterator[Violation]:
    """Yield the reasons why the test nets do not have the output, or why it cannot be used."""
    if not plan.judged_by:
        return
    edge = judged(plan, tests)
    if edge is None:
        names = ", ".join(dict.fromkeys(edge.blob for test in tests for edge in test.outputs))
        why = f'no test net has an output "{plan.judged_by}"'
        yield Violation(field_of(plan), why, f"they have {names}" if names else "")
    elif count(edge.shape) != 1:
        why = f'the test output "{plan.judged_by}" is {count(edge.shape)} numbers, of which none is the one to judge by'
        yield Violation(field_of(plan), why, "name one that is a single number")


def judged(plan: RunPlan, tests: Sequence[LayerGraph]) -> Edge | None:
    """Return the output of the first test net that has it, or ``None`` if no test net has it."""
    return next((edge for test in tests for edge in test.outputs if edge.blob == plan.judged_by), None)


def higher_is_better(plan: RunPlan, tests: Sequence[LayerGraph]) -> bool:
    """Return whether higher values of the output are better; by default, for all outputs except losses."""
    better = plan.early_stopping_param.better
    if better == pb.EarlyStoppingParameter.AUTO:
        edge = judged(plan, tests)
        return edge is None or not edge.loss_weight
    return better == pb.EarlyStoppingParameter.HIGHER
