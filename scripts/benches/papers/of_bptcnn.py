"""bpt's values of the quantities of BPT-CNN; see ``sources.py``."""

from __future__ import annotations

import math
from statistics import fmean

from scripts.benches.papers import forecasts
from scripts.benches.papers.found import FORECAST, MEASURED, Results, Row, Value

ALONE = "one process"

ON_NODES = "simulated"


def _points(results: Results, figure: str) -> dict[int, Row]:
    """Return the rows of a panel of ``scripts/bench figures``, by the value on its x axis."""
    return {int(float(next(iter(row.values())))): row for row in results.rows("figures", figure)}


BEST, RIVAL = "AGWU+IDPA", "ASGD+UDPA"
BYTES = 1e3  # MB of a GB


def _at(results: Results, figure: str, x: str) -> float | None:
    row = _points(results, figure).get(int(x))
    return None if row is None else float(row[BEST]) * (BYTES if figure == "fig15a" else 1)


def bptcnn_figure(results: Results, figure: str, x: str) -> Value | None:
    """Return a point of BPT-CNN's curve in a figure."""
    number = _at(results, figure, x)
    why = "; Eq. 11 counts 2 c_w m K' bytes, gigabytes for any network of Table 2" if figure == "fig15a" else ""
    return None if number is None else Value(number, FORECAST, ON_NODES + why)


def bptcnn_growth(results: Results, figure: str, first: str, last: str) -> Value | None:
    """Return the ratio of two points."""
    low, high = _at(results, figure, first), _at(results, figure, last)
    why = "Eq. 11 is in proportion to the nodes" if figure == "fig15a" else "little in a pass has a fixed cost"
    return None if low is None or high is None else Value(high / low, FORECAST, f"simulated; {why}")


def bptcnn_falls(results: Results, figure: str, first: str, last: str) -> Value | None:
    """Return whether the curve falls between two points."""
    points = [float(row[BEST]) for x, row in sorted(_points(results, figure).items()) if int(first) <= x <= int(last)]
    if not points:
        return None
    remark = f"{points[0]:,.0f} s to {points[-1]:,.0f} s; {ON_NODES}{_measured_along(results, figure)}"
    return Value(float(forecasts.falling(points)), FORECAST, remark)


AXES = {"fig13a": "nodes", "fig13b": "threads"}


def _measured_along(results: Results, figure: str) -> str:
    """Return the times to the accuracy that were measured here along the axis of a figure, for a remark."""
    times: dict[str, list[float]] = {}
    for row in results.rows("bptcnn", "axes"):
        if row["axis"] == AXES.get(figure) and row["way"] == BEST and row["seconds_to_level"]:
            times.setdefault(row["value"], []).append(float(row["seconds_to_level"]))
    each = ", ".join(f"{value} {AXES[figure]} {fmean(times[value]):.1f} s" for value in sorted(times, key=int))
    return f"; measured here, digits: {each}" if each else ""


def bptcnn_place(results: Results, figure: str) -> Value | None:
    """Return the worst place of AGWU+IDPA among the strategies, over all values of x; 1 is the fastest."""
    places = []
    for row in _points(results, figure).values():
        times = {name: float(value) for name, value in list(row.items())[1:]}
        places.append(1 + sum(seconds < times[BEST] for seconds in times.values()))
    return Value(float(max(places)), FORECAST, f"at each of {len(places)} values; {ON_NODES}") if places else None


def bptcnn_balance(results: Results, which: str) -> Value | None:
    """Return the highest or lowest balance index over the numbers of nodes."""
    values = [float(row[BEST]) for row in _points(results, "fig15b").values()]
    remark = "1 - Eq. 8 / (m sum of max); the paper does not define its index"
    return Value({"max": max, "min": min}[which](values), FORECAST, remark) if values else None


INVERTED = (
    "; inverts the paper's order. In runs apart from this one, of case 1: after 5 passes AGWU+IDPA has 0.33 to 0.64 by "
    "seed (0.36 to 0.68 without Eq. 10's factor Q), too few passes; after 40 it has 0.88 to 0.92, asynchronous SGD "
    "0.59 to 0.92, and one seed does not tell them apart: with two nodes the factors of Eq. 9 add up to 2, and tests "
    "swing by 14 points"
)


def _accuracy(results: Results, way: str) -> float | None:
    """Return the mean accuracy of a way's last weights; of a bench that was stopped, that of the last tests."""
    values = [float(row["windows_accuracy"]) for row in results.rows("bptcnn", "runs") if row["way"] == way]
    values = values or [float(rows[-1]["accuracy"]) for rows in _tests(results, way.replace(" ", "_")) if rows]
    return fmean(values) if values else None


def bptcnn_accuracy(results: Results, way: str) -> Value | None:
    """Return the mean accuracy of the last weights of a way, or the ratio of BPT-CNN's to the rival's."""
    best, rival = _accuracy(results, BEST), _accuracy(results, RIVAL)
    if best is None or rival is None:
        return None
    number = {BEST: best, RIVAL: rival, "ratio": best / rival}[way]
    alone = _accuracy(results, ALONE)
    remark = f"digits, this host alone; one process: {alone:.3f}" if alone else "digits, this host alone"
    return Value(number, MEASURED, remark + INVERTED * (best < rival))


def _tests(results: Results, way: str) -> list[list[Row]]:
    return results.runs(way, "tests")


def bptcnn_auc(results: Results, which: str) -> Value | None:
    """Return the ratio of the last AUCs."""
    last = {way: [float(rows[-1]["auc"]) for rows in _tests(results, way) if rows] for way in (BEST, RIVAL)}
    if not all(last.values()):
        return None
    return Value(fmean(last[BEST]) / fmean(last[RIVAL]), MEASURED, "digits; AUC of ten classes, one against the others")


def bptcnn_passes(results: Results, way: str, level: str) -> Value | None:
    """Return the passes until a test reached an accuracy; infinite if none did."""
    found = []
    for rows in _tests(results, way):
        reached = [float(row["epoch"]) for row in rows if float(row["accuracy"]) >= float(level)]
        found.append(min(reached, default=math.inf))
    if not found:
        return None
    number = fmean(found)
    remark = "digits, which are learnt in fewer passes than ImageNet"
    return Value(number, MEASURED, remark + "; not reached in so short a run" * math.isinf(number))
