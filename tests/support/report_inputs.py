"""The inputs of a page of results, with numbers that are fixed: two runs, a trace, a trained network and its data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bpt import caffe

NET = """name: "bright"
layer { name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { source: "list.txt" batch_size: 3 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 1 kernel_size: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 test_iter: 2 test_interval: 1\n'
SUMS = (0.0, 1.0, 4.0, 3.0, 0.0, 4.0)  # of the pixels; the net answers class 1 if they are above 2
LABELS = (0, 0, 1, 0, 1, 1)  # so samples 3 and 4 are wrong, the latter with more certainty


def write_lines(path: Path | str, records: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))


def write_network(sums: tuple[float, ...] = SUMS, labels: tuple[int, ...] = LABELS) -> None:
    """Write a trained network, its solver and its test data to the current folder."""
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(SOLVER)
    Path("list.txt").write_text("data.h5\n")
    pixels = np.repeat(np.array(sums, np.float32) / 4, 4).reshape(-1, 1, 2, 2)
    with h5py.File("data.h5", "w") as file:
        file["data"], file["label"] = pixels, np.array(labels, np.float32)
    net = caffe.Net("net.prototxt", caffe.TEST)
    net.params["conv"][0].data[...], net.params["conv"][1].data[...] = 1, 0
    net.params["ip"][0].data[...], net.params["ip"][1].data[...] = [[0] * 4, [1] * 4], [0, -2]
    net.save("net.caffemodel")


def run_records(rate: float, ranks: int, is_planned: bool = False) -> list[dict[str, Any]]:
    """Return the metrics of a run whose loss falls by ``rate``, with tests every 40 of 200 iterations.

    Args:
        is_planned: whether the ranks have forecasts.
    """

    def load(rank: int) -> dict[str, Any]:
        loads = {"computing": 0.01 + 0.002 * rank, "data": 0.0005, "exchange": 0.004, "pipeline": None}
        forecast = {"computing": 0.011, "data": 0.0, "exchange": 0.003, "pipeline": 0.0}
        return {"rank": rank, "host": "node", **loads, **({"predicted": forecast} if is_planned else {})}

    begin = 1000.0
    records: list[dict[str, Any]] = [
        {"kind": "start", "time": begin, "iteration": 0, "net": "bright", "solver": "solver.prototxt", "bpt": "1.2.3",
         "ranks": ranks, "random_seed": 1, "max_iter": 200},
    ]  # fmt: skip
    for iteration in range(20, 201, 20):
        time = begin + iteration * 0.015 * ranks
        loss = 0.05 + 2.25 * math.exp(-rate * iteration)
        lr = 0.01 if iteration < 120 else 0.001
        records.append(
            {"kind": "train", "time": time, "iteration": iteration, "loss": loss, "lr": lr,
             "ranks": [load(rank) for rank in range(ranks)]}
        )  # fmt: skip
        if iteration % 40 == 0:
            outputs = {"accuracy": 1 - 0.9 * math.exp(-rate * iteration), "loss": loss * 1.1}
            records.append({"kind": "test", "time": time, "iteration": iteration, "net": 0, "outputs": outputs})
    records.append({"kind": "snapshot", "time": time, "iteration": 200, "path": "snapshots/bright_iter_200.caffemodel"})
    return [*records, {"kind": "end", "time": time + 0.5}]


def bar(rank: int, kind: str, name: str, start: float, length: float) -> dict[str, object]:
    """Return an event of a trace; ``start`` and ``length`` are milliseconds."""
    return {"ph": "X", "pid": rank, "tid": 1, "cat": kind, "name": name, "ts": start * 1e3, "dur": length * 1e3}


def iterations(count: int) -> list[dict[str, object]]:
    """Return the events of iterations of 10 ms on two ranks."""
    return [
        event
        for index in range(count)
        for rank in (0, 1)
        for event in (
            bar(rank, "compute", "F0", 10 * index, 3), bar(rank, "compute", "B0", 10 * index + 3, 4),
            bar(rank, "exchange", "Allreduce", 10 * index + 4, 2), bar(rank, "compute", "U", 10 * index + 8, 2),
            bar(rank, "disk", "write", 10 * index, 1),
        )
    ]  # fmt: skip


LONG = "another_run_with_two_ranks_and_a_lower_learning_rate.jsonl"
WORDS = ["report", "run.jsonl", LONG, "--output=run.html", "--solver=solver.prototxt",
         "--weights=net.caffemodel", "--trace=trace.json"]  # fmt: skip
"""The command that makes a page of what ``write_inputs`` writes."""


def write_inputs() -> None:
    """Write all that WORDS names to the current folder. The net is wrong with all of a class, and most of the other."""
    write_network(SUMS, (0, 0, 0, 0, 1, 0))
    Path("classes.txt").write_text("dark\nbright & clear\n")
    write_lines("run.jsonl", run_records(0.03, 1))
    write_lines(LONG, run_records(0.012, 2, is_planned=True))
    extra = [
        bar(0, "data", "read", 11.0, 2), bar(0, "compute", "X0", 17.1, 0.2), bar(0, "compute", "W", 17.3, 0.7),
        bar(0, "compute", "snapshot", 27.2, 0.5),
    ]  # fmt: skip
    Path("trace.json").write_text(json.dumps({"traceEvents": [*iterations(5), *extra]}))
