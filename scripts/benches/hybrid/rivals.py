"""``scripts/bench hybrid --rivals``: Fig. 6 of the Hybrid paper, 3D-ResAttNet trained by its rivals on this machine.

    ONE     one process
    DP      data parallelism as torch's DataParallel: gradients are summed on one rank, which sends them (TREE)
    DDP     PyTorch's DistributedDataParallel over gloo
    DDG     decoupled, delayed gradients (Huo et al. 2018): stages of consecutive layers go backward side by side, by
            the gradients of some batches ago; forward they wait for each other, so no iteration begins before the last
            has ended
    FDG     fully decoupled (Zhuang et al. 2021): the same without waiting, schedule: DELAYED; without its shrinking of
            gradients
    ASGD    data parallelism by asynchronous SGD: each rank sends its gradients to the server, which is on the first
    HYBRID  two stages as the net's solver_hybrid places them (GABRA, delayed gradients), and as many pipelines as ranks
            allow, which go in step by RING
    HYBRID_ASGD  the same with asynchronous SGD among the pipelines: the hybrid as published

All train the same batches' size with the same rates from the same weights, with one thread a rank. DDG and FDG have the
same delays, and so curves that differ by rounding alone. Times are those of training, tests left out; a rank more than
there are cores makes none faster. The losses of ASGD and HYBRID_ASGD are those of tests.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.benches.harness.asynchronous import train_asynchronously
from scripts.benches.harness.launch import ROOT, JobError, run_worker
from scripts.benches.harness.panels import check_matplotlib
from scripts.benches.harness.tables import Tables
from scripts.benches.harness.testbed import call
from scripts.benches.harness.turns import in_turn
from scripts.benches.hybrid import rival_figures
from scripts.benches.hybrid.rival_points import RivalPoint
from scripts.benches.hybrid.rival_results import CURVES, HEAD, Trained, curves, rows, step_of, table
from scripts.benches.hybrid.rival_ways import Rival, quick_rivals, rivals_of

SOLVER = "prototxt/resattnet18_3d/solver_small_hybrid.prototxt"
QUIET = f"test_interval: {2**31 - 1} test_initialization: false snapshot: 0 snapshot_after_train: false display: 0"


def train(rival: Rival, order: Mapping[str, Any], folder: Path) -> list[RivalPoint]:
    """One run.

    Raises:
        JobError: it has failed.
    """
    fields = [*order["set"], rival.fields, QUIET, "engine: CONTIGUOUS"]
    if rival.is_asynchronous:
        fields.append(f"test_interval: {order['every']}")
        record = train_asynchronously(order["solver"], fields, rival.ranks, folder)
        return [(row.iteration, row.seconds, row.loss, row.accuracy) for row in record.tests_of() if row.iteration]
    own = {**order, "set": fields, "lock": rival.name == "DDG"}
    return [
        (int(iteration), seconds, loss, accuracy)
        for iteration, seconds, loss, accuracy in run_worker(rival.module, own, folder, rival.ranks, threads=1)
    ]


def run(arguments: argparse.Namespace) -> None:
    check_matplotlib()
    iterations, rounds = arguments.train, arguments.repeats
    chosen = rivals_of(arguments.ways, arguments.ranks)
    if arguments.quick:
        iterations, rounds, chosen = min(iterations, 10), 1, quick_rivals(arguments.ways)
    arguments.out.mkdir(parents=True, exist_ok=True)
    rivals = []
    for rival in chosen:
        if rival.why_not:
            print(f"{rival.name} on {rival.ranks} ranks is left out: {rival.why_not}", flush=True)
        else:
            rivals.append(rival)
    with tempfile.TemporaryDirectory() as scratch:
        data = brains(Path(scratch))
        order = {
            "solver": str(write_solver(data, iterations, Path(scratch))), "seed": 1, "iterations": iterations,
            "every": max(1, iterations // (2 if arguments.quick else 10)),
            "set": ["random_seed: 1"],
        }  # fmt: skip
        runs: dict[Rival, list[list[RivalPoint]]] = {rival: [] for rival in rivals}
        try:
            for rival in in_turn(rivals, rounds):
                print(f"{rival.name} on {rival.ranks}", file=sys.stderr, flush=True)
                runs[rival].append(train(rival, order, Path(scratch)))
        except JobError as error:
            sys.exit(f"error: {error}")
    found = [Trained(rival, curves[0], [step_of(points) for points in curves]) for rival, curves in runs.items()]
    print(*table(found), sep="\n")
    cores = len(os.sched_getaffinity(0))
    crowded = max(rival.ranks for rival in rivals)
    if crowded > cores:
        print(f"There are {cores} cores; ranks beyond that are not faster for being more.")
    tables = Tables(arguments.out)
    tables.add("rivals", HEAD, rows(found))
    tables.add("rival_curves", CURVES, curves(found))
    rival_figures.draw(arguments.out / "rivals.png", found)
    print(f"numbers and figures: {arguments.out}")


def brains(folder: Path) -> Path:
    """The volumes: those that scripts/make_brains.py has made, or else makes now."""
    made = ROOT / "data" / "brains"
    if (made / "train.txt").exists():
        return made
    call(ROOT / "scripts" / "make_brains.py", "--out", str(folder / "brains"))
    return folder / "brains"


def write_solver(data: Path, iterations: int, folder: Path) -> Path:
    """The solver with other lists of volumes, for so many iterations; its rate falls in proportion."""
    text = (ROOT / SOLVER).read_text()
    [net] = re.findall(r'^net: "(.*)"', text, re.MULTILINE)
    (folder / "net.prototxt").write_text((ROOT / net).read_text().replace("data/brains/", f"{data}/"))
    text = text.replace(net, str(folder / "net.prototxt"))
    [whole] = map(int, re.findall(r"^max_iter: (\d+)", text, re.MULTILINE))

    def scaled(found: re.Match[str]) -> str:
        return f"{found[1]}: {max(1, int(found[2]) * iterations // whole)}"

    text = re.sub(r"\b(max_iter|stepvalue): (\d+)", scaled, text)
    path = folder / "solver.prototxt"
    path.write_text(text)
    return path
