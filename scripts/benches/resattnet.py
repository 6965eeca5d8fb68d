"""Hybrid, Table 3: accuracy and training time of 3D-ResAttNet on 1 to 4 ranks, and the terms of Eq. 13."""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.benches.ddp import as_root, mpirun
from scripts.benches.speedup import Training, epochs_until, terms

HELP = "3D-ResAttNet on 1 to 4 ranks: accuracy, training time (Hybrid, Table 3), and the terms of its Eq. 13"
WORKER = Path(__file__).with_name("resattnet_worker.py")
SOLVER = "prototxt/resattnet18_3d/solver_small.prototxt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--solver", default=SOLVER, help="what to train (default %(default)s)")
    parser.add_argument(
        "--ways", default="1,2,3,4,2x2",
        help="ranks, or stages x replicas, separated by commas; the others are compared with the first "
        "(default %(default)s)",
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
        "--accuracy", type=float, default=0.95, help="of a net that has converged (default %(default)s)"
    )
    parser.add_argument("--exchange", default="RING", help="how gradients are summed (default %(default)s)")
    parser.add_argument(
        "--scope", default="GLOBAL", choices=("GLOBAL", "REPLICA"),
        help="whether the ranks divide the batch, or each trains one, as in the paper (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, help="of each rank (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="random_seed of all runs (default %(default)s)")
    parser.add_argument("--set", action="append", default=[], help="more fields of the solver, for all runs")
    parser.add_argument("--output", default="accuracy", help="the test net's blob with it (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds for a run (default %(default)s)")


@dataclass(frozen=True)
class Way:
    """How ranks are used: each replica is a pipeline of ``stages``."""

    stages: int
    replicas: int

    @classmethod
    def read(cls, text: str) -> Way:
        """From ``4``, 4 replicas, or ``2x2``, stages by replicas."""
        numbers = [int(number) for number in text.split("x")]
        if len(numbers) > 2 or min(numbers) < 1:
            sys.exit(f'--ways: "{text}" is neither a number of ranks nor stages x replicas')
        return cls(*numbers) if len(numbers) == 2 else cls(1, numbers[0])

    @property
    def ranks(self) -> int:
        return self.stages * self.replicas

    def fields(self, exchange: str, scope: str) -> str:
        """Its ``parallel_param``.

        Pipelines get the whole batch at once, since the net's BatchNorm is to see it: so they have the curve of one
        rank, but do not run side by side.
        """
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
    work = {
        "solver": arguments.solver, "set": fields, "output": arguments.output,
        "epochs": arguments.epochs, "iterations": iterations or arguments.iterations,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        order, answer = Path(folder, "order"), Path(folder, "answer")
        order.write_text(json.dumps(work))
        words = [sys.executable, str(WORKER), str(order), str(answer)]
        environment = os.environ | as_root() | {"OMP_NUM_THREADS": str(arguments.threads)}
        launcher = mpirun(way.ranks) if way.ranks > 1 else []
        done = subprocess.run([*launcher, *words], env=environment, timeout=arguments.timeout, check=False)
        return Seen(**json.loads(answer.read_text())) if done.returncode == 0 else None


def run(arguments: argparse.Namespace) -> None:
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
            print(f"{way.ranks} ranks, {way.stages}x{way.replicas}: has failed, see above", flush=True)
        else:
            runs.append((way, seen))
            print(row(way, seen, runs[0][1], arguments.accuracy), flush=True)
    if arguments.turns > 1 and runs:
        runs = timed_in_turn(runs, arguments)
        print(f"T as the median of {arguments.turns} turns:", HEAD, sep="\n")
        print(*(row(way, seen, runs[0][1], arguments.accuracy) for way, seen in runs), sep="\n")
    if runs:
        print(*notes(runs, arguments.accuracy), sep="\n")


def timed_in_turn(runs: Sequence[tuple[Way, Seen]], arguments: argparse.Namespace) -> list[tuple[Way, Seen]]:
    """The runs with steps timed in further turns: what else the machine does then hits all ways alike."""
    steps = {way: [seen.step] for way, seen in runs}
    for turn in range(1, arguments.turns):
        for way in list(steps) if turn % 2 == 0 else list(steps)[::-1]:
            again = train(way, arguments, arguments.turn)
            if again is not None:
                steps[way].append(again.step)
    return [(way, replace(seen, step=statistics.median(steps[way]))) for way, seen in runs]


HEAD = (
    f"{'ranks':>5} {'SxR':>5} {'ACC':>6} {'TT min':>7} {'speed-up':>8} | {'T ms':>8} {'T1/Tm':>6} "
    f"{'TS':>7} {'TS1/TSm':>7} {'E':>4} {'E1/Em':>6} {'STm':>6}"
)


def row(way: Way, seen: Seen, first: Seen, goal: float) -> str:
    """A line of the table: on the left the paper's Table 3, on the right Eq. 13."""
    one, many = first.training(goal), seen.training(goal)
    factors = terms(one, many)
    return (
        f"{way.ranks:>5} {way.stages:>3}x{way.replicas} {seen.accuracies[-1]:>6.3f} {seen.seconds / 60:>7.2f} "
        f"{first.seconds / seen.seconds:>8.2f} | {many.step * 1e3:>8.1f} {factors.step:>6.2f} {many.steps:>7.2f} "
        f"{factors.steps:>7.2f} {many.epochs or '-':>4} {_or_dash(factors.epochs):>6} {_or_dash(factors.speedup):>6}"
    )


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
