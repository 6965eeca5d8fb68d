"""bpt's value of each quantity in the papers' value files: the function that a row's column "source" names.

Each takes the results of a run and the words behind its name. It returns ``None`` where the bench that measures the
value has left nothing, because it was left out or has failed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import fmean, median

import torch

from bpt.config.plan.resolve import read_plan
from bpt.graph.layer_spec import count
from bpt.nn.net_graph import build_graph_of
from bpt.perf.simulate.simulation_net import without_data
from scripts.benches.balance.nets import NETS
from scripts.benches.harness.hybrid_forecast import hybrid_speedup as speedup_of_hybrid
from scripts.benches.harness.launch import PROTOTXT
from scripts.benches.papers import forecasts
from scripts.benches.papers.found import COUNTED, FORECAST, MEASURED, Results, Row, Value

Source = Callable[..., Value | None]
MILLI, MILLION, PERCENT = 1e-3, 1e6, 100
ORIGINAL, ALONE = "TREE", "one process"
NO_REASON = ""


# CGDP

ON_P100 = "cost model (Eq. 1) with the times of Tables 2 and 3 of AlexNet"


def cgdp_speedup(results: Results, net: str) -> Value:
    """Return the speed-up of CGDP over OrigDP on four GPUs."""
    forecast = forecasts.cgdp_forecast(net)
    chunks = f"; chunks of {forecast.chunk}" if forecast.chunk > 1 else ""
    return Value(forecast.speedup, FORECAST, f"{ON_P100}{chunks}{_measured_speedups(results)}")


def _measured_speedups(results: Results) -> str:
    """Return what was measured here, for a remark."""
    best: dict[tuple[str, str], float] = {}
    for row in results.rows("cgdp", "summary"):
        if row["way"].startswith("CGDP") and row["speedup_origdp"]:
            key = row["net"], row["ranks"]
            best[key] = max(best.get(key, 0.0), float(row["speedup_origdp"]))
    return "".join(f"; measured here, {net} on {ranks} CPU ranks: {best[net, ranks]:.2f}" for net, ranks in best)


def cgdp_efficiency(results: Results, net: str) -> Value:
    """Return the efficiency of weak scaling on four GPUs."""
    measured = [
        f"; measured here, {row['net']} on {row['ranks']} CPU ranks: {float(row['efficiency']):.2f}"
        for row in results.rows("cgdp", "scaling")
        if row["way"].startswith("CGDP") and row["efficiency"]
    ]
    return Value(forecasts.cgdp_forecast(net).efficiency, FORECAST, ON_P100 + "".join(measured))


def cgdp_images(results: Results, which: str) -> Value:
    """Return how many images of VGG-16 fit into a P100."""
    cgdp, original = (forecasts.vgg_images(exchange) for exchange in ("CGDP", "TREE"))
    number = cgdp / original if which == "ratio" else {"CGDP": cgdp, "TREE": original}[which]
    remark = "16 GiB, blobs and parameters counted; without the libraries' workspaces, which the paper's GPUs also held"
    return Value(number, FORECAST, remark)


def cgdp_long_run(results: Results) -> Value:
    """Return the ratio of training times until an accuracy, at the same curve by iteration."""
    remark = f"{ON_P100}; the paper's minutes hold 21 tests, too"
    return Value(forecasts.cgdp_forecast("alexnet").speedup, FORECAST, remark)


def cgdp_exposed(results: Results, which: str) -> Value:
    """Return the milliseconds of AlexNet's exchange that no computation hides."""
    if which == ORIGINAL:
        remark = "an input of the cost model, not its result"
        return Value(forecasts.original_exchange("alexnet") / MILLI, FORECAST, remark)
    remark = "Eq. 2 with Table 3's layer 1: 14 + 18 + 7 us; without t_as, which Table 2 counts as backward"
    return Value(forecasts.cgdp_exposed() / MILLI, FORECAST, remark)


def cgdp_phase(results: Results, way: str, phase: str) -> Value | None:
    """Return the milliseconds of a phase of an iteration."""
    rows = [row for row in results.rows("cgdp", "summary") if row["way"].split()[0] == way]
    if not rows:
        return None
    row = next((each for each in rows if each["net"] == "alexnet"), rows[0])  # the paper's, if it was measured
    remark = f"{row['net']} on {row['ranks']} CPU ranks, {row['batch_per_rank']} images of {row['size']} pixels each"
    return Value(float(row[phase]) / MILLI, MEASURED, remark)


def cgdp_parameters(results: Results, layer: str) -> Value:
    """Return the millions of parameters of a layer of AlexNet."""
    remark = "the paper's top layer has 4 million: the biases and 1,000 outputs of 4,096 inputs are 4.1"
    return Value(
        forecasts.layers_of("alexnet")[-int(layer)].elements / MILLION, COUNTED, remark if layer == "8" else NO_REASON
    )


def cgdp_copy(results: Results, layer: str) -> Value:
    """Return the milliseconds that a copy of a layer's gradients takes in this machine's memory."""
    source = torch.zeros(forecasts.layers_of("alexnet")[-int(layer)].elements)
    return Value(_seconds(lambda: torch.empty_like(source).copy_(source)) / MILLI, MEASURED, "a copy in memory; no GPU")


def cgdp_accumulate(results: Results, layer: str) -> Value:
    """Return the milliseconds that the sum of four such gradients takes on one core."""
    total = torch.zeros(forecasts.layers_of("alexnet")[-int(layer)].elements)
    return Value(
        _seconds(lambda: [total.add_(total) for _ in range(3)]) / MILLI,
        MEASURED,
        "four gradients on this machine's CPU",
    )


TURNS = 3


def _seconds(work: Callable[[], object]) -> float:
    """Return the median seconds of some turns, after one that does not count."""
    work()
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


# MPI-FC


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


# StaticLB


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
    """Return the speed-up of balanced shares, measured on the most replicas there were, or forecast for 16."""
    forecast = forecasts.balanced_speedup()
    why = ""
    if net == "resnet110":
        slow = forecasts.slow_speed_for(forecasts.printed("staticlb")["Table 4", _OF_RESNET_110])
        why = f"; 8.2 needs a slow half of {slow:.3f} of the speed, for which the paper gives no reason"
    remark = f"forecast for 16 replicas, half of them a quarter as fast: {forecast:.2f}{why}"
    if rows := _speedups(results, net):
        best = rows[0]
        ideal = float(best["ideal_in_training"])
        words = f"{best['ranks']} replicas, batch {best['batch']}; ideal there: {ideal:.2f}; {remark}"
        return Value(float(best["speedup"]), MEASURED, words)
    return Value(forecast, FORECAST, f"16 replicas, half of them a quarter as fast, without exchange{why}")


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
    """Return the maximum or last accuracy of a net."""
    for row in results.rows("balance", "accuracy"):
        if row["net"] == net and row["balance"] == side:
            data = "digits" if net == "staticlb_mnist" else "images made by a formula"
            remark = f"{float(row['epochs']):.3g} epochs, {row['repetitions']} repetitions, on {data} (without data/)"
            return Value(float(row[kind]) * PERCENT, MEASURED, remark)
    return None


# Hybrid

ON_V100 = "bpt plan: one pipeline over all GPUs by GABRA, DELAYED"
LINEAR = "; the paper's is more than linear at 2, which a pipeline of equal GPUs cannot be"


def hybrid_speedup(results: Results, depth: str, gpus: str) -> Value:
    """Return the speed-up on so many GPUs."""
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
    speedup = _forecast_of_hybrid(results, depth, gpus)
    return Value(float(alone) / speedup, FORECAST, f"the paper's {alone} min on one GPU by {speedup:.2f}; {ON_V100}")


def hybrid_accuracy(results: Results, gpus: str) -> Value | None:
    """Return the accuracy of the hybrid on as many ranks as there were, at most ``gpus``."""
    rows = [row for row in results.rows("resattnet", "resattnet") if int(row["ranks"]) <= int(gpus) and row["accuracy"]]
    if not rows:
        return None
    most = max(rows, key=lambda row: (int(row["ranks"]), row["way"].startswith("hybrid")))
    remark = (
        f"small 3D-ResAttNet on made-up brains, {most['ranks']} ranks ({most['way']}), {float(most['epochs']):.3g} "
        "epochs; ADNI's scans are to be asked for"
    )
    return Value(float(most["accuracy"]), MEASURED, remark)


def hybrid_least(results: Results) -> Value | None:
    """Return whether the hybrid's training time is the least among the rivals'."""
    rows = [row for row in results.rows("hybrid", "rivals") if int(row["ranks"]) > 1]
    if not any(row["way"].startswith("HYBRID") for row in rows):
        return None
    times = {f"{row['way']} on {row['ranks']}": float(row["training_seconds"]) for row in rows}
    least = min(times, key=lambda name: times[name])
    order = ", ".join(f"{name} {times[name]:.1f} s" for name in sorted(times, key=lambda name: times[name]))
    why = "" if least.startswith("HYBRID") else "; inverts the paper; the cause has not been measured"
    return Value(float(least.startswith("HYBRID")), MEASURED, f"{order}{why}")


# BPT-CNN

ON_NODES = "simulated on 30 nodes of our own description; the paper gives none"


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
    return Value(float(forecasts.falling(points)), FORECAST, f"{points[0]:,.0f} s to {points[-1]:,.0f} s; {ON_NODES}")


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


INVERTED = "; inverts the paper's order in this short run; the cause has not been measured"


def _accuracy(results: Results, way: str) -> float | None:
    values = [float(row["windows_accuracy"]) for row in results.rows("bptcnn", "runs") if row["way"] == way]
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


SOURCES: dict[str, Source] = {
    source.__name__: source
    for source in (
        cgdp_speedup, cgdp_efficiency, cgdp_images, cgdp_long_run, cgdp_exposed, cgdp_phase, cgdp_parameters, cgdp_copy,
        cgdp_accumulate, mpifc_elements, mpifc_update, mpifc_work, mpifc_accuracy, mpifc_seconds, mpifc_batch,
        staticlb_parameters, staticlb_speedup, staticlb_epoch, staticlb_accuracy, hybrid_speedup, hybrid_minutes,
        hybrid_accuracy, hybrid_least, bptcnn_figure, bptcnn_growth, bptcnn_falls, bptcnn_place, bptcnn_balance,
        bptcnn_accuracy, bptcnn_auc, bptcnn_passes,
    )
}  # fmt: skip
