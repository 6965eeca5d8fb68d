"""The rules for the settings of detection tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.violation import Violation
from bpt.data.detection.average_precision import AP_VERSIONS
from bpt.nn.net_graph import is_evaluated

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan
    from bpt.graph.layer_graph import LayerGraph

EVAL_TYPES = ("classification", "detection")


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield the reasons why the detection tests of ``plan`` cannot be evaluated."""
    if plan.eval_type not in EVAL_TYPES:
        yield Violation(("eval_type",), f'eval_type is "{plan.eval_type}"; it must be {_words(EVAL_TYPES)}')
    if plan.ap_version not in AP_VERSIONS:
        yield Violation(("ap_version",), f'ap_version is "{plan.ap_version}"; it must be {_words(tuple(AP_VERSIONS))}')


def violations_of_test(plan: RunPlan, test: LayerGraph) -> Iterator[Violation]:
    """Yield the reasons why this net cannot be tested for detections, if ``eval_type`` asks for that."""
    others = [edge.blob for edge in test.outputs if not is_evaluated(test, edge)]
    if plan.eval_type == "detection" and others:
        yield Violation(
            ("eval_type",),
            f'eval_type: "detection" judges what DetectionEvaluate layers make, and the test net also makes '
            f"{', '.join(others)}",
            "let a Silence layer take these, or leave eval_type out: outputs of DetectionEvaluate are always judged so",
        )


def _words(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
