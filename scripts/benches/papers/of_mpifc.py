"""bpt's values of the quantities of MPI-FC; see ``sources.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scripts.benches.papers.found import COUNTED, MEASURED, Results, Row, Value

PERCENT = 100


def _by_master(results: Results) -> list[Row]:
    """Return the cases of layers that are split over master and slaves."""
    return [row for row in results.rows("mpifc", "layers") if row["scheme"] == "MASTER_SLAVE"]


def _farthest_from_1(ratios: Sequence[float]) -> float:
    return max(ratios, key=lambda ratio: abs(ratio - 1))


def mpifc_elements(results: Results, column: str) -> Value | None:
    """Return the elements that master and slaves have sent by Table 1's formula, of all cases the farthest from 1."""
    ratios = [float(row[column]) / float(row["elements_table1"]) for row in _by_master(results)]
    remark = f"{len(ratios)} cases of B, K and n_t"
    return Value(_farthest_from_1(ratios), COUNTED, remark) if ratios else None


def mpifc_update(results: Results) -> Value | None:
    """Return the elements that the update has sent: those of an iteration that neither direction has sent."""
    rest = [float(row["elements_update"]) for row in _by_master(results)]
    return Value(max(rest), COUNTED, f"{len(rest)} cases of B, K and n_t") if rest else None


def mpifc_work(results: Results, phase: str) -> Value | None:
    """Return the multiply-adds that a slave has made in a phase by Table 1's formula."""
    column, formula = {
        "forward": ("multiply_adds_of_a_rank", "multiply_adds_table1"),
        "backward": ("multiply_adds_backward_of_a_rank", "multiply_adds_table1"),
        "update": ("multiply_adds_update_of_a_rank", "multiply_adds_update_table1"),
    }[phase]
    ratios = [float(row[column]) / float(row[formula]) for row in _by_master(results)]
    remark = f"{len(ratios)} cases, counted in torch's operations"
    return Value(_farthest_from_1(ratios), COUNTED, remark) if ratios else None


def _mpifc_curve(results: Results, net: str) -> list[Row]:
    """Return the curve of the net on master and slaves, in whole batches."""
    rows = results.rows("mpifc", f"{net}_accuracy")
    return [row for row in rows if row["scheme"] == "MASTER_SLAVE" and row["passes"] == "1"]


DATA = {
    "lenet": "scikit-learn's digits",
    "cifar10_quick": "images made by a formula, unless data/cifar10 is there; its classes differ less than photographs",
}


def mpifc_accuracy(results: Results, net: str) -> Value | None:
    """Return the highest accuracy on master and slaves, and that of the whole net in the remark."""
    curve = _mpifc_curve(results, net)
    if not curve:
        return None
    whole = [
        row for row in results.rows("mpifc", f"{net}_accuracy") if row["scheme"] == "whole" and row["passes"] == "1"
    ]
    alone = max((float(row["accuracy"]) for row in whole), default=math.nan)
    remark = f"after {curve[-1]['iteration']} iterations on {DATA[net]}; the whole net: {alone * PERCENT:.1f} %"
    return Value(max(float(row["accuracy"]) for row in curve) * PERCENT, MEASURED, remark)


def mpifc_seconds(results: Results, net: str) -> Value | None:
    """Return the seconds until the highest accuracy on master and slaves."""
    curve = _mpifc_curve(results, net)
    if not curve:
        return None
    best = max(curve, key=lambda row: float(row["accuracy"]))
    remark = f"until {float(best['accuracy']) * PERCENT:.1f} %, {best['K']} slaves of one thread"
    return Value(float(best["seconds"]), MEASURED, remark)


def mpifc_batch(results: Results, net: str) -> Value | None:
    """Return whether whole batches are faster than as many passes of one sample, on master and slaves."""
    last: dict[str, Row] = {}
    for row in results.rows("mpifc", f"{net}_accuracy"):
        if row["scheme"] == "MASTER_SLAVE":
            last["whole" if row["passes"] == "1" else "ones"] = row
    if len(last) < 2:
        return None
    whole, ones = (float(last[name]["seconds"]) / float(last[name]["iteration"]) for name in ("whole", "ones"))
    return Value(
        float(whole < ones), MEASURED, f"{ones / whole:.1f} times as long an iteration in passes of one sample"
    )
