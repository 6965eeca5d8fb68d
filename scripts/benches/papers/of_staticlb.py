"""bpt's values of the quantities of StaticLB; see ``sources.py``."""

from __future__ import annotations

from bpt.config.plan.resolve import read_plan
from bpt.graph.layer_spec import count
from bpt.nn.net_graph import build_graph_of
from bpt.perf.simulate.simulation_net import without_data
from scripts.benches.balance.nets import NETS
from scripts.benches.harness.launch import PROTOTXT
from scripts.benches.papers import forecasts
from scripts.benches.papers.found import COUNTED, FORECAST, MEASURED, Results, Row, Value

MILLION, PERCENT = 1e6, 100
QUARTER = "; the paper prints no speeds: a quarter is what its 2.5 asks for"


def staticlb_parameters(results: Results, net: str) -> Value:
    """Return the parameters of a network: millions of a ResNet, as in Table 4, or all."""
    shape = tuple(int(length) for length in NETS[net].shape.split("x"))
    graph = build_graph_of(without_data(read_plan(PROTOTXT / net / "solver.prototxt").train, shape))
    number = sum(count(param.shape) for param in graph.learnable)
    return Value(number / (MILLION if net.startswith("resnet") else 1), COUNTED)


def _speedups(results: Results, net: str) -> list[Row]:
    """Return the rows of a net, the most replicas first."""
    rows = [row for row in results.rows("balance", "speedups") if row["net"] == net]
    return sorted(rows, key=lambda row: -int(row["ranks"]))


def staticlb_speedup(results: Results, net: str) -> Value:
    """Return the speed-up of balanced shares, forecast for 16 replicas; the remark has what was measured on fewer."""
    forecast = forecasts.balanced_speedup()
    why = ""
    if net == "resnet110":
        slow = forecasts.slow_speed_for(forecasts.printed("staticlb")["Table 4", _OF_RESNET_110])
        why = f"; 8.2 needs a slow half of {slow:.3f} of the speed, for which the paper gives no reason"
    if rows := _speedups(results, net):
        best = rows[0]
        why += (
            f"; measured here on {best['ranks']} replicas in cgroups, batch {best['batch']}: "
            f"{float(best['speedup']):.2f}, ideal there: {float(best['ideal_in_training']):.2f}"
        )
    return Value(forecast, FORECAST, f"16 replicas, half of them a quarter as fast, without exchange{QUARTER}{why}")


_OF_RESNET_110 = "ResNet-110: speed-up of balanced shares on 16 replicas"


def staticlb_epoch(results: Results, net: str, side: str) -> Value:
    """Return the seconds of an epoch: measured, or the paper's other time by the forecast speed-up."""
    if rows := _speedups(results, net):
        column = {"UNIFORM": "unbalanced", "STATIC": "balanced"}[side]
        remark = f"{rows[0]['ranks']} replicas in cgroups of this machine, batch {rows[0]['batch']}"
        return Value(float(rows[0][column]), MEASURED, remark)
    name = f"ResNet-{net.removeprefix('resnet')}"
    printed, speedup = forecasts.printed("staticlb"), forecasts.balanced_speedup()
    unbalanced, balanced = (
        printed["Table 4", f"{name}: {way}, seconds of an epoch"] for way in ("unbalanced", "balanced")
    )
    if side == "UNIFORM":
        return Value(balanced * speedup, FORECAST, "the paper's balanced seconds times the forecast speed-up")
    return Value(unbalanced / speedup, FORECAST, "the paper's unbalanced seconds by the forecast speed-up")


def staticlb_accuracy(results: Results, net: str, side: str, kind: str) -> Value | None:
    """Return the maximum or last accuracy of a net; nothing forecasts it, so ``None`` where it was not measured."""
    for row in results.rows("balance", "accuracy"):
        if row["net"] == net and row["balance"] == side:
            data = "digits" if net == "staticlb_mnist" else "images made by a formula"
            remark = f"{float(row['epochs']):.3g} epochs, {row['repetitions']} repetitions, on {data} (without data/)"
            return Value(float(row[kind]) * PERCENT, MEASURED, remark)
    return None
