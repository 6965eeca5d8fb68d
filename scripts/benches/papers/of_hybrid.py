"""bpt's values of the quantities of the Hybrid paper; see ``sources.py``."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.log import plural
from scripts.benches.harness.hybrid_forecast import hybrid_speedup as speedup_of_hybrid
from scripts.benches.papers.found import FORECAST, GIVEN, MEASURED, Results, Row, Value

ON_V100 = "bpt plan: one pipeline over all GPUs by GABRA, DELAYED"
OF_ONE = "the paper's: the minutes on more GPUs are forecast from it"
LINEAR = "; the paper's is more than linear at 2, which a pipeline of equal GPUs cannot be"


def hybrid_speedup(results: Results, depth: str, gpus: str) -> Value:
    """Return the speed-up on so many GPUs."""
    if gpus == "1":
        return Value(1.0, GIVEN, "by definition")
    number = _forecast_of_hybrid(results, depth, gpus)
    return Value(number, FORECAST, ON_V100 + (LINEAR if gpus == "2" else "") + _measured_hybrid(results, gpus))


def _forecast_of_hybrid(results: Results, depth: str, gpus: str) -> float:
    """Return the speed-up that ``scripts/bench resattnet`` has forecast, or forecast it now."""
    for row in results.rows("resattnet", "forecast"):
        if (row["depth"], row["gpus"]) == (depth, gpus):
            return float(row["speedup"])
    return speedup_of_hybrid(int(depth), int(gpus))


def _measured_hybrid(results: Results, ranks: str) -> str:
    """Return what ``scripts/bench resattnet`` has measured on so many ranks, for a remark."""
    found = [row for row in results.rows("resattnet", "resattnet") if row["ranks"] == ranks]
    each = "".join(f", {row['way']} {float(row['speedup']):.2f}" for row in found if int(ranks) > 1)
    return f"; measured here on {ranks} ranks{each}" if each else ""


def hybrid_minutes(results: Results, depth: str, gpus: str, alone: str) -> Value:
    """Return the minutes of training, by the paper's of one GPU and the forecast speed-up."""
    if gpus == "1":
        return Value(float(alone), GIVEN, OF_ONE)
    speedup = _forecast_of_hybrid(results, depth, gpus)
    return Value(float(alone) / speedup, FORECAST, f"the paper's {alone} min on one GPU by {speedup:.2f}; {ON_V100}")


def hybrid_accuracy(results: Results, gpus: str) -> Value | None:
    """Return the accuracy of the hybrid on as many ranks as there were, at most ``gpus``."""
    rows = [row for row in results.rows("resattnet", "resattnet") if int(row["ranks"]) <= int(gpus) and row["accuracy"]]
    if not rows:
        return None
    most = max(rows, key=lambda row: (int(row["ranks"]), row["way"].startswith("hybrid")))
    remark = f"{plural(int(most['ranks']), 'rank')} ({most['way']}), {float(most['epochs']):.3g} epochs"
    return Value(float(most["accuracy"]), MEASURED, remark)


def _why_not_least(rows: Sequence[Row], least: float) -> str:
    """Return what was measured of a hybrid that is not the fastest, for a remark.

    FDG is the same pipeline, but for the placement: its layers are cut into runs of like cost (BLOCK), not by GABRA.
    """
    times = {(row["way"], row["ranks"]): float(row["training_seconds"]) for row in rows}
    hybrids = {key: seconds for key, seconds in times.items() if key[0].startswith("HYBRID")}
    way, ranks = min(hybrids, key=lambda key: hybrids[key])
    hybrid = hybrids[way, ranks]
    words = f"; inverts the paper: {way} on {ranks} takes {hybrid / least:.2f} times as long as the fastest"
    if same := times.get(("FDG", ranks)):
        words += f", and {hybrid / same:.2f} times as long as FDG, which differs from it by the placement alone"
    return f"{words}; the ranks share this machine's cores"


def hybrid_least(results: Results) -> Value | None:
    """Return whether the hybrid's training time is the least among the rivals'."""
    rows = [row for row in results.rows("hybrid", "rivals") if int(row["ranks"]) > 1]
    if not any(row["way"].startswith("HYBRID") for row in rows):
        return None
    times = {f"{row['way']} on {row['ranks']}": float(row["training_seconds"]) for row in rows}
    least = min(times, key=lambda name: times[name])
    order = ", ".join(f"{name} {times[name]:.1f} s" for name in sorted(times, key=lambda name: times[name]))
    why = "" if least.startswith("HYBRID") else _why_not_least(rows, times[least])
    return Value(float(least.startswith("HYBRID")), MEASURED, f"{order}{why}")
