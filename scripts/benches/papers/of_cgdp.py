"""bpt's values of the quantities of CGDP; see ``sources.py``."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from scripts.benches.papers import forecasts
from scripts.benches.papers.found import COUNTED, FORECAST, MEASURED, Results, Value

MILLI, MILLION = 1e-3, 1e6
ORIGINAL = "TREE"
ORIG_DP = "OrigDP"  # the name of TREE in the results of scripts/bench cgdp
NO_REASON = ""

INVERTED = (
    "; inverts the paper: in its Fig. 8 chunks of one layer are slower than OrigDP, here they give {:.3f}, for "
    "AlexNet's times tell nothing of what a chunk costs whatever its size: t_as goes by elements"
)
ON_P100 = "cost model (Eq. 1) with the times of Tables 2 and 3 of AlexNet"


def cgdp_speedup(results: Results, net: str) -> Value:
    """Return the speed-up of CGDP over OrigDP on four GPUs."""
    forecast = forecasts.cgdp_forecast(net)
    inverted = net == "resnet152" and forecast.original > forecast.by_layers
    why = INVERTED.format(forecast.original / forecast.by_layers) if inverted else ""
    return Value(forecast.speedup, FORECAST, f"{ON_P100}{why}{_measured_speedups(results)}")


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
        f"; measured here, {row['net']} on {row['ranks']} CPU ranks, which share the cores that one rank has for "
        f"itself: {float(row['efficiency']):.2f}"
        for row in results.rows("cgdp", "scaling")
        if row["way"].startswith("CGDP") and row["efficiency"]
    ]
    return Value(forecasts.cgdp_forecast(net).efficiency, FORECAST, ON_P100 + "".join(measured))


def cgdp_images(results: Results, which: str) -> Value:
    """Return how many images of VGG-16 fit into a P100."""
    counted = {exchange: forecasts.vgg_images(exchange) for exchange in ("CGDP", ORIGINAL)}
    memory = _memory_on_cpu(results)
    if which == "ratio":
        given = int(forecasts.printed("cgdp")["§5.2.2, Fig. 6b", _IMAGES_OF_ORIG_DP])
        more = counted["CGDP"] - counted[ORIGINAL]
        remark = f"OrigDP's {given} as given, and {more} in the place of the gradients of other GPUs: {given + more}"
        return Value((given + more) / given, FORECAST, remark + memory)
    remark = "16 GiB, blobs and parameters counted; without the libraries' workspaces, which the paper's GPUs also held"
    return Value(counted[which], FORECAST, remark + memory)


_IMAGES_OF_ORIG_DP = "VGG-16: images of a GPU's batch with OrigDP"
MEBI = 2**20


def _memory_on_cpu(results: Results) -> str:
    """Return by how much CGDP's memory differs from OrigDP's here, where no GPU's is freed, for a remark."""
    peaks: dict[tuple[str, str], float] = {}
    for row in results.rows("cgdp", "summary"):
        if row["peak_bytes"]:
            key = row["net"], row["way"].split()[0]
            peaks[key] = max(peaks.get(key, 0.0), float(row["peak_bytes"]))
    nets = [net for net, way in peaks if way == ORIG_DP and (net, "CGDP") in peaks]
    return "".join(
        f"; measured here, {net} on CPU ranks: {(peaks[net, 'CGDP'] - peaks[net, ORIG_DP]) / MEBI:+.0f} MiB a rank "
        "with CGDP, whose areas of gradients lie in the same memory on a CPU"
        for net in nets
    )


def cgdp_long_run(results: Results) -> Value:
    """Return the ratio of training times until an accuracy, at the same curve by iteration."""
    remark = f"{ON_P100}; the paper's minutes hold 21 tests, too"
    return Value(forecasts.cgdp_forecast("alexnet").speedup, FORECAST, remark)


def cgdp_exposed(results: Results, which: str) -> Value | None:
    """Return the milliseconds of an exchange that no computation hides.

    CGDP's is forecast for AlexNet. OrigDP's is an input of the cost model, so only a measurement tells something.
    """
    if which == ORIGINAL:
        return cgdp_phase(results, ORIGINAL, "exposed")
    remark = "Eq. 2 with Table 3's layer 1: 14 + 18 + 7 us; without t_as, which Table 2 counts as backward"
    return Value(forecasts.cgdp_exposed() / MILLI, FORECAST, remark)


HIDDEN = 0.01  # of an iteration at most: the paper's 21.8 us of 167 ms are less


def cgdp_phase(results: Results, way: str, phase: str) -> Value | None:
    """Return the milliseconds of a phase of an iteration."""
    name = ORIG_DP if way == ORIGINAL else way
    rows = [row for row in results.rows("cgdp", "summary") if row["way"].split()[0] == name]
    if not rows:
        return None
    row = next((each for each in rows if each["net"] == "alexnet"), rows[0])  # the paper's, if it was measured
    remark = f"{row['net']} on {row['ranks']} CPU ranks, {row['batch_per_rank']} images of {row['size']} pixels each"
    if (way, phase) == ("CGDP", "exposed") and (share := float(row[phase]) / float(row["seconds"])) > HIDDEN:
        remark += (
            f"; inverts the paper: {share:.0%} of an iteration is exposed, since cores that compute also copy and sum"
        )
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
