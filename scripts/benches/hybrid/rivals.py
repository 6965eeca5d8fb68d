"""``scripts/bench hybrid --rivals``: Fig. 6 of the Hybrid paper, 3D-ResAttNet trained by its rivals on this machine.

    ONE     one process
    DP      data parallelism as torch's DataParallel: gradients are summed on one rank, which sends them (TREE)
    DDP     PyTorch's DistributedDataParallel over gloo
    DDG     decoupled, delayed gradients (Huo et al. 2018): stages of consecutive layers go backward side by side, by
            the gradients of some batches ago; forward they wait for each other, so no iteration begins before the last
            has ended
    FDG     fully decoupled (Zhuang et al. 2021): the same without waiting, schedule: DELAYED; without its shrinking of
            gradients
    HYBRID  two stages as the net's solver_hybrid places them, and as many pipelines as ranks allow, by RING

All train the same batches' size with the same rates from the same weights, with one thread a rank. DDG and FDG have the
same delays, and so curves that differ by rounding alone. Times are those of training, tests left out; a rank more than
there are cores makes none faster.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bpt.report.log import columns
from scripts.benches.harness.launch import ROOT, JobError, run_worker
from scripts.benches.harness.panels import check_matplotlib
from scripts.benches.harness.tables import Tables
from scripts.benches.harness.testbed import call
from scripts.benches.harness.turns import in_turn
from scripts.benches.hybrid import rival_figures
from scripts.benches.hybrid.rival_points import RivalPoint

SOLVER = "prototxt/resattnet18_3d/solver_small_hybrid.prototxt"
NAMES = ("ONE", "DP", "DDP", "DDG", "FDG", "HYBRID")
STAGES = 2  # of HYBRID
BATCH = 6  # of the solver; DDP's ranks have equal parts of it
QUIET = f"test_interval: {2**31 - 1} test_initialization: false snapshot: 0 snapshot_after_train: false display: 0"


@dataclass(frozen=True)
class Rival:
    """A way to train on so many ranks."""

    name: str
    ranks: int

    @property
    def module(self) -> str:
        """Whose ranks train."""
        return "hybrid.plain_ranks" if self.name == "DDP" else "hybrid.rival_ranks"

    @property
    def fields(self) -> str:
        """What is laid over the solver's text."""
        stages = {"DDG": self.ranks, "FDG": self.ranks, "HYBRID": STAGES}.get(self.name, 1)
        exchange = "TREE" if self.name == "DP" else "RING"
        allocator = "" if self.name == "HYBRID" else "pipeline_param { allocator: BLOCK partition_by: LAYERS }"
        return f"parallel_param {{ num_stages: {stages} exchange: {exchange} {allocator if stages > 1 else ''} }}"

    @property
    def why_not(self) -> str:
        """What keeps it from running on so many ranks; nothing: it can."""
        if self.name == "DDP" and BATCH % self.ranks:
            return f"a batch of {BATCH} has no {self.ranks} equal parts"
        if self.name == "HYBRID" and self.ranks % STAGES:
            return f"{self.ranks} ranks are no pipelines of {STAGES}"
        return ""


def rivals_of(names: Sequence[str], ranks: Sequence[int]) -> list[Rival]:
    """ONE, to which all are compared, and the others on each number of ranks above 1."""
    return [Rival("ONE", 1)] + [Rival(name, m) for m in ranks for name in names if name != "ONE" and m > 1]


@dataclass(frozen=True)
class Trained:
    """What became of a rival.

    Attributes:
        points: of the first round.
        steps: seconds of an iteration, one a round.
    """

    rival: Rival
    points: Sequence[RivalPoint]
    steps: Sequence[float]

    @property
    def step(self) -> float:
        """Seconds of an iteration: the median over the rounds."""
        return median(self.steps)

    @property
    def seconds(self) -> float:
        """Of all iterations: TT of the paper's Table 3, tests left out."""
        return self.step * self.points[-1][0]


def step_of(points: Sequence[RivalPoint]) -> float:
    """Seconds of an iteration, without those before the first test, in which caches and pipelines fill."""
    first, last = points[0], points[-1]
    if len(points) == 1:
        return last[1] / last[0]
    return (last[1] - first[1]) / (last[0] - first[0])


HEAD = ("way", "ranks", "iterations", "step_seconds", "speedup", "training_seconds", "loss", "accuracy")
CURVES = ("way", "ranks", "iteration", "seconds", "loss", "accuracy")


def rows(found: Sequence[Trained]) -> Iterator[tuple[object, ...]]:
    """In the columns of HEAD."""
    one = found[0]
    for trained in found:
        iteration, _, loss, accuracy = trained.points[-1]
        yield (
            trained.rival.name, trained.rival.ranks, iteration, trained.step, one.step / trained.step,
            trained.seconds, loss, accuracy,
        )  # fmt: skip


def curves(found: Sequence[Trained]) -> Iterator[tuple[object, ...]]:
    """In the columns of CURVES."""
    for trained in found:
        for point in trained.points:
            yield trained.rival.name, trained.rival.ranks, *point


def table(found: Sequence[Trained]) -> Iterator[str]:
    """The rows in short."""
    lines = [["way", "ranks", "step ms", "speed-up", "training s", "loss", "accuracy"]]
    for name, ranks, _, step, speedup, seconds, loss, accuracy in rows(found):
        lines.append(
            [str(name), str(ranks), f"{_float(step) * 1e3:.1f}", f"{_float(speedup):.2f}", f"{_float(seconds):.1f}",
             f"{_float(loss):.4f}", f"{_float(accuracy):.1%}"]
        )  # fmt: skip
    yield from columns(lines, left=1)


def _float(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def train(rival: Rival, order: Mapping[str, Any], folder: Path) -> list[RivalPoint]:
    """One run.

    Raises:
        JobError: it has failed.
    """
    fields = [*order["set"], rival.fields, QUIET, "engine: CONTIGUOUS"]
    own = {**order, "set": fields, "lock": rival.name == "DDG"}
    return [
        (int(iteration), seconds, loss, accuracy)
        for iteration, seconds, loss, accuracy in run_worker(rival.module, own, folder, rival.ranks, threads=1)
    ]


def run(arguments: argparse.Namespace) -> None:
    check_matplotlib()
    iterations, rounds, ranks = arguments.train, arguments.repeats, arguments.ranks
    if arguments.quick:
        iterations, rounds, ranks = min(iterations, 10), 1, [STAGES]
    arguments.out.mkdir(parents=True, exist_ok=True)
    rivals = []
    for rival in rivals_of(arguments.ways, ranks):
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
