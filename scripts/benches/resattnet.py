"""Hybrid, Table 3: accuracy and training time of 3D-ResAttNet on 1 to 4 ranks, and the terms of Eq. 13.

Ways are numbers of replicas (4), stages by replicas (2x2) that train exactly as one process, and the hybrid as it was
published (hybrid2x2): pipelines of so many stages, placed by GABRA, with delayed gradients, and asynchronous SGD among
the replicas. Ranks that are not here are forecast: ``bpt plan`` for 1 to 8 GPUs (Table 3's numbers), in forecast.csv.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.sources import SolverSource, read_solver
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.solver.solver import Solver
from scripts.benches.harness import asynchronous
from scripts.benches.harness.arguments import add_output, at_least, explain
from scripts.benches.harness.curve import accuracy_of
from scripts.benches.harness.hybrid_forecast import hybrid_speedup
from scripts.benches.harness.launch import ROOT, JobError, run_worker
from scripts.benches.harness.tables import write_rows
from scripts.benches.harness.turns import in_turn
from scripts.benches.speedup import Training, epochs_until, terms

HELP = "3D-ResAttNet on 1 to 4 ranks: accuracy, training time (Hybrid, Table 3), and the terms of its Eq. 13"
SOLVER = "prototxt/resattnet18_3d/solver_small.prototxt"
HYBRID_SOLVER = "prototxt/resattnet18_3d/solver_small_hybrid.prototxt"
WAYS, FEW_WAYS = "1,2,3,4,2x2,hybrid2x1,hybrid2x2", "1,2,hybrid2x1,hybrid2x2"
FEW_EPOCHS, ACCURACY, LOW_ACCURACY = 6.0, 0.95, 0.75  # the first and the last with --quick
DEPTHS = (18, 34)  # of the networks that are forecast


PUBLISHED = "hybrid"
ALONE = "parallel_param { num_stages: 1 exchange: ALLREDUCE pipeline_param { schedule: GPIPE allocator: BLOCK } }"
# Tests are called for here, after each epoch; snapshots by nobody.
QUIET = f"test_interval: {2**31 - 1} test_initialization: false snapshot: 0 snapshot_after_train: false display: 0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--solver", default=SOLVER, help="what to train (default %(default)s)")
    parser.add_argument(
        "--hybrid-solver", default=HYBRID_SOLVER, help="what the published hybrid trains (default %(default)s)"
    )
    parser.add_argument(
        "--ways",
        help="ranks, stages x replicas, or hybrid and these, by commas; the others are compared with the first "
        f"(default {WAYS}; with --quick {FEW_WAYS})",
    )  # fmt: skip
    parser.add_argument("--epochs", type=float, default=0, help="how many to train (default: the solver's max_iter)")
    parser.add_argument("--iterations", type=int, default=0, help="how many to train, instead of epochs")
    parser.add_argument(
        "--turns", type=int, default=1,
        help="how often the time of a step is measured; from the second turn on, all ways train some iterations one "
        "after the other, and the median counts (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--turn", type=int, default=20, help="iterations of such a turn (default %(default)s)")
    parser.add_argument(
        "--accuracy", type=float, help=f"of a net that has converged (default {ACCURACY}; with --quick {LOW_ACCURACY})"
    )
    parser.add_argument("--exchange", default="RING", help="how gradients are summed (default %(default)s)")
    parser.add_argument(
        "--scope", default="GLOBAL", choices=("GLOBAL", "REPLICA"),
        help="whether the ranks divide the batch, or each trains one, as in the paper (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, help="of each rank (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="random_seed of all runs (default %(default)s)")
    parser.add_argument("--set", action="append", default=[], help="more fields of the solver, for all runs")
    parser.add_argument("--blob", default="accuracy", help="the test net's blob with it (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds for a run (default %(default)s)")
    parser.add_argument(
        "--forecast", type=at_least(0), default=8, metavar="N", help="GPUs to forecast; 0: none (default %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="few ways and epochs, unless others are given")
    add_output(parser, ROOT / "bench" / "resattnet", "CSV files")


@dataclass(frozen=True)
class Way:
    """How ranks are used: each replica is a pipeline of ``stages``.

    Attributes:
        published: as the paper has it: GABRA, delayed gradients, and asynchronous SGD among the replicas.
    """

    stages: int
    replicas: int
    published: bool = False

    @classmethod
    def read(cls, text: str) -> Way:
        """From ``4``, 4 replicas, ``2x2``, stages by replicas, or ``hybrid2x2``."""
        published = text.startswith(PUBLISHED)
        numbers = [int(number) for number in text.removeprefix(PUBLISHED).split("x")]
        if len(numbers) > 2 or min(numbers) < 1 or (published and len(numbers) < 2):
            sys.exit(f'--ways: "{text}" is neither a number of ranks nor stages x replicas')
        stages, replicas = numbers if len(numbers) == 2 else (1, numbers[0])
        return cls(stages, replicas, published)

    def __str__(self) -> str:
        return f"{PUBLISHED * self.published}{self.stages}x{self.replicas}"

    @property
    def is_asynchronous(self) -> bool:
        """Whether its replicas do not go in step."""
        return self.published and self.replicas > 1

    @property
    def ranks(self) -> int:
        return self.stages * self.replicas

    def fields(self, exchange: str, scope: str) -> str:
        """Its ``parallel_param``; the solver of the published hybrid has the rest of it.

        Exact pipelines get the whole batch at once, since BatchNorm is to see it: so they have the curve of one
        rank, but do not run side by side.
        """
        if self.published:
            exchange = "exchange: ASGD server: COLOCATED" if self.is_asynchronous else "exchange: ALLREDUCE"
            return f"parallel_param {{ num_stages: {self.stages} {exchange} }}"
        pipeline = "pipeline_param { micro_batches: 1 }" if self.stages > 1 else ""
        return f"parallel_param {{ num_stages: {self.stages} exchange: {exchange} batch_scope: {scope} {pipeline} }}"


@dataclass(frozen=True)
class Seen:
    """What a run has shown.

    Attributes:
        samples: of the training set.
        batch: samples of an iteration, on all ranks.
        steps: iterations of an epoch.
        step: seconds of an iteration, the median.
        seconds: of all iterations, without tests.
        accuracies: of the test after each epoch; that of the last may be cut short.
        loss: of the last iteration.
    """

    net: str
    samples: int
    batch: int
    steps: float
    step: float
    seconds: float
    accuracies: list[float]
    loss: float

    def training(self, goal: float) -> Training:
        """With the accuracy that makes a net count as converged."""
        return Training(self.step, self.steps, epochs_until(self.accuracies, goal))


def train(way: Way, arguments: argparse.Namespace, iterations: int = 0) -> Seen | None:
    """One run, of so many iterations or as the arguments say; ``None`` if it failed, which it has told."""
    fields = [f"random_seed: {arguments.seed}", way.fields(arguments.exchange, arguments.scope), *arguments.set]
    order = {
        "solver": arguments.hybrid_solver if way.published else arguments.solver, "set": fields,
        "blob": arguments.blob, "epochs": arguments.epochs, "iterations": iterations or arguments.iterations,
    }  # fmt: skip
    if way.is_asynchronous:
        return train_asynchronously(way, order, arguments.threads, arguments.timeout)
    with tempfile.TemporaryDirectory() as folder:
        try:
            seen = run_worker(
                "resattnet", order, Path(folder), way.ranks, arguments.threads, arguments.timeout, tell=True
            )
        except JobError:
            return None
    return Seen(**seen)


def train_asynchronously(way: Way, order: Mapping[str, Any], threads: int, timeout: float) -> Seen | None:
    """Train by ``bpt train`` and read its report; ``None`` if it failed, which it has told."""
    source = read_solver(order["solver"], order["set"])
    with Solver(read_solver(order["solver"], [ALONE, QUIET])) as solver:
        name = solver.net.graph.name
        samples, batch, steps = epoch_steps(solver, SerialCommunicator())
    last = order["iterations"] or round(order["epochs"] * steps) or source.param.max_iter
    fields = [*order["set"], f"max_iter: {last} test_interval: {round(steps)}"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            record = asynchronous.train_asynchronously(
                order["solver"], fields, way.ranks, Path(folder), threads, timeout
            )
        except JobError as error:
            print(error, file=sys.stderr)
            return None
    seconds = record.execution_time
    tests = [row for row in record.tests_of() if row.iteration]  # one before training is of no epoch
    return Seen(
        name, samples, batch, steps, seconds / last, seconds, [row.accuracy for row in tests], tests[-1].loss
    )  # fmt: skip


def settle(arguments: argparse.Namespace) -> None:
    """Set what was not given, by whether the run is to be quick."""
    quick: bool = arguments.quick
    arguments.ways = arguments.ways or (FEW_WAYS if quick else WAYS)
    arguments.accuracy = arguments.accuracy or (LOW_ACCURACY if quick else ACCURACY)
    if quick and not arguments.iterations:
        arguments.epochs = arguments.epochs or FEW_EPOCHS


def run(arguments: argparse.Namespace) -> None:
    settle(arguments)
    ways = [Way.read(text) for text in arguments.ways.split(",")]
    print(
        f"{arguments.solver}, exchange {arguments.exchange}, batch_scope {arguments.scope}; cores available: "
        f"{len(os.sched_getaffinity(0))}; threads of a rank: {arguments.threads}"
    )
    print(HEAD, flush=True)
    runs: list[tuple[Way, Seen]] = []
    for way in ways:
        seen = train(way, arguments)
        if seen is None:
            print(f"{way.ranks} ranks, {way}: has failed, see above", flush=True)
        else:
            runs.append((way, seen))
            print(row(way, seen, runs[0][1], arguments.accuracy), flush=True)
    if arguments.turns > 1 and runs:
        runs = timed_in_turn(runs, arguments)
        print(f"T as the median of {arguments.turns} turns:", HEAD, sep="\n")
        print(*(row(way, seen, runs[0][1], arguments.accuracy) for way, seen in runs), sep="\n")
    if runs:
        print(*notes(runs, arguments.accuracy), sep="\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_rows(arguments.out / "resattnet.csv", MEASURED, measured_rows(runs, arguments.accuracy))
    if arguments.forecast:
        rows = [
            (depth, gpus, hybrid_speedup(depth, gpus)) for depth in DEPTHS for gpus in range(1, arguments.forecast + 1)
        ]
        write_rows(arguments.out / "forecast.csv", FORECAST, rows)
        print("Forecast by bpt plan: one pipeline of the published hybrid over so many GPUs, speed-up")
        for depth in DEPTHS:
            each = "  ".join(f"{gpus}: {speedup:.2f}" for known, gpus, speedup in rows if known == depth)
            print(f"  3D-ResAttNet-{depth}  {each}")
    print(f"CSV files: {arguments.out}")


def timed_in_turn(runs: Sequence[tuple[Way, Seen]], arguments: argparse.Namespace) -> list[tuple[Way, Seen]]:
    """The runs with steps timed in further turns: what else the machine does then hits all ways alike."""
    steps = {way: [seen.step] for way, seen in runs}
    for way in in_turn(list(steps)[::-1], arguments.turns - 1):
        again = train(way, arguments, arguments.turn)
        if again is not None:
            steps[way].append(again.step)
    return [(way, replace(seen, step=median(steps[way]))) for way, seen in runs]


HEAD = (
    f"{'ranks':>5} {'SxR':>9} {'ACC':>6} {'TT min':>7} {'speed-up':>8} | {'T ms':>8} {'T1/Tm':>6} "
    f"{'TS':>7} {'TS1/TSm':>7} {'E':>4} {'E1/Em':>6} {'STm':>6}"
)


def row(way: Way, seen: Seen, first: Seen, goal: float) -> str:
    """A line of the table: on the left the paper's Table 3, on the right Eq. 13."""
    one, many = first.training(goal), seen.training(goal)
    factors = terms(one, many)
    return (
        f"{way.ranks:>5} {way!s:>9} {seen.accuracies[-1]:>6.3f} {seen.seconds / 60:>7.2f} "
        f"{first.seconds / seen.seconds:>8.2f} | {many.step * 1e3:>8.1f} {factors.step:>6.2f} {many.steps:>7.2f} "
        f"{factors.steps:>7.2f} {many.epochs or '-':>4} {_or_dash(factors.epochs):>6} {_or_dash(factors.speedup):>6}"
    )


MEASURED = (
    "way", "ranks", "accuracy", "training_seconds", "speedup", "epochs", "step_seconds", "steps_of_an_epoch",
    "epochs_to_goal", "T1/Tm", "TS1/TSm", "E1/Em", "STm",
)  # fmt: skip
FORECAST = ("depth", "gpus", "speedup")


def measured_rows(runs: Sequence[tuple[Way, Seen]], goal: float) -> Iterator[tuple[object, ...]]:
    """Rows in the columns of MEASURED: Table 3, Eq. 13 to 15; what was not reached is empty."""
    for way, seen in runs:
        _, first = runs[0]
        many = seen.training(goal)
        factors = terms(first.training(goal), many)
        reached = ("" if math.isnan(factor) else factor for factor in (factors.epochs, factors.speedup))
        yield (
            str(way), way.ranks, seen.accuracies[-1], seen.seconds, first.seconds / seen.seconds, len(seen.accuracies),
            many.step, many.steps, many.epochs or "", factors.step, factors.steps, *reached,
        )  # fmt: skip


def notes(runs: Sequence[tuple[Way, Seen]], goal: float) -> Iterator[str]:
    """What to know of the table."""
    _, first = runs[0]
    yield f"{first.net}: {first.samples} volumes, {len(first.accuracies)} epochs, the last maybe cut short; S stages, R"
    yield "replicas. ACC: accuracy of the last test. TT: training time without tests; speed-up: its ratio to the first"
    yield "line's, as in the paper's Fig. 5. STm = T1/Tm · TS1/TSm · E1/Em, Eq. 13: T is the median time of a step, TS"
    yield f"the steps of an epoch, E the epochs until the accuracy is {goal:g} (-: it never was)."
    cores = len(os.sched_getaffinity(0))
    crowded = [way.ranks for way, _ in runs if way.ranks > cores]
    if crowded:
        yield f"There are {cores} cores, which more ranks than that share: these are not faster for being more."


def _or_dash(number: float) -> str:
    return "-" if math.isnan(number) else f"{number:.2f}"


def work(order: dict[str, Any], world: Communicator) -> dict[str, Any]:
    """A rank: the fields of Seen."""
    source = read_solver(order["solver"], [*order["set"], QUIET])
    return train_on(source, world, order["epochs"], order["iterations"], order["blob"])


def epoch_steps(solver: Solver, world: Communicator) -> tuple[int, int, float]:
    """Samples of the training set, samples of a batch of all ranks, and iterations of an epoch."""
    own = [(layer.epoch, layer.share.total) for layer in solver.net.data_layers().values()]
    samples, batch = next(found[0] for found in world.allgather(own) if found)  # a later stage reads no data
    batch *= solver.plan.optim.iter_size
    return samples, batch, samples / batch


def ends_of_epochs(steps: float, iterations: int) -> list[int]:
    """After how many iterations each epoch ends; the last may be cut short."""
    epochs = range(1, int(iterations / steps) + 2)
    return sorted({min(round(epoch * steps), iterations) for epoch in epochs} - {0} | {iterations})


def train_on(
    source: SolverSource | RunPlan, world: Communicator, epochs: float, iterations: int, blob: str
) -> dict[str, Any]:
    """Train so many epochs, or iterations, or else as the solver says. A collective call.

    Returns:
        The fields of Seen.
    """
    with Solver(source, world=world) as solver:
        samples, batch, steps = epoch_steps(solver, world)
        last = iterations or round(epochs * steps) or solver.plan.max_iter
        seconds: list[float] = []
        accuracies: list[float] = []
        settled = 0
        for end in ends_of_epochs(steps, last):
            while solver.iter < end:
                start = time.perf_counter()
                solver.step(1)
                seconds.append(time.perf_counter() - start)
                settled += not solver.runtime.tuner.settled
            accuracies.append(accuracy_of(solver, world, blob))
        return {
            "net": solver.net.graph.name,
            "samples": samples,
            "batch": batch,
            "steps": steps,
            "step": median(seconds[settled:] or seconds),
            "seconds": sum(seconds),
            "accuracies": accuracies,
            "loss": solver.loss,
        }
