"""Accuracy of asynchronous training against the spread of the nodes' speeds, by rule of staleness and outer step.

LeNet learns the digits; every sample is trained K times, on nodes of which one is the fastest. The clock is virtual:
the simulator says when submissions arrive, and workers and server compute real weights (learning.py). So speeds are
exact, on any machine, and the same command gives the same numbers. --bed measures on
the test bed instead (Linux, root).

    accuracy  of the last weights, on the 360 test images, each through all 25 windows of 28 x 28 pixels
    lost      points of accuracy by which one process is better; the ± is the standard error of a mean over seeds
    time      relative to one process on the fastest node
    staleness mean over the updates; dropped: submissions of DISCARD

--spread 1:0.5:0.25 are the nodes' speeds, several by commas. --quick trains little, on one spread with one seed, and
shows that all ways run. Rows that are in the folder's CSV file already are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import torch

from bpt.base.errors import BptError
from bpt.base.log import columns
from bpt.config.plan.resolve import resolve
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.sources import read_solver
from scripts.benches.harness.arguments import add_output, at_least, explain, some_of
from scripts.benches.harness.digits import accuracy
from scripts.benches.harness.launch import ROOT, JobError
from scripts.benches.harness.outer_jobs import Jobs, Work, without_momentum
from scripts.benches.harness.tables import append_rows
from scripts.benches.harness.testbed import call, end_by_signals, on_testbed
from scripts.benches.staleness.learning import Learnt, learn, learn_alone
from scripts.benches.staleness.ways import ALONE, WAYS, Way

HELP = "asynchronous training: accuracy by rule of staleness and outer step, against the spread of speeds"
IMAGES, QUICK_IMAGES = 360 * 25, 250
QUICK = {"samples": 640, "passes": 2, "seeds": 1, "spreads": [(1.0, 0.25)]}
SPREADS = "1:1,1:0.5,1:0.25,1:0.125,1:0.5:0.25"
BATCH, NEVER = 64, 10**9
HEAD = ("spread", "way", "seed", "accuracy", "seconds", "staleness", "discarded")


@dataclass(frozen=True)
class Result:
    """One run; the attributes are the columns of HEAD, with the accuracy in percent."""

    spread: str
    way: str
    seed: int
    accuracy: float
    seconds: float
    staleness: float
    discarded: int

    @property
    def row(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in HEAD)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    number = at_least(1)
    explain(parser, __doc__)
    parser.add_argument("--spreads", "--spread", type=spreads_of, default=SPREADS, help="speeds (default %(default)s)")
    parser.add_argument("--ways", type=some_of(WAYS, "way"), default=",".join(WAYS), help="which (default: all)")
    parser.add_argument("--seeds", type=number, default=3, help="how many, from 1 on (default %(default)s)")
    parser.add_argument("--samples", type=number, default=11520, help="of the data set (default %(default)s)")
    parser.add_argument("--passes", type=number, default=6, help="K (default %(default)s)")
    parser.add_argument("--bed", action="store_true", help="measure on the test bed (Linux, root)")
    parser.add_argument("--quick", action="store_true", help="little work")
    add_output(parser, ROOT / "bench" / "staleness", "a CSV file of all runs")


def spreads_of(text: str) -> list[tuple[float, ...]]:
    """Return the speeds of the nodes of each spread, for argparse."""
    try:
        spreads = [tuple(float(speed) for speed in spread.split(":")) for spread in text.split(",")]
    except ValueError:
        spreads = []
    if not spreads or not all(0 < speed <= 1 for spread in spreads for speed in spread):
        raise argparse.ArgumentTypeError(f'takes speeds from above 0 to 1, as in {SPREADS}, found "{text}"')
    return spreads


def run(arguments: argparse.Namespace) -> None:
    if arguments.quick:
        arguments = argparse.Namespace(**vars(arguments) | QUICK)
    end_by_signals()
    try:
        folder: Path = arguments.out.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        call(ROOT / "scripts" / "make_digits.py", str(ROOT / "data" / "digits"))
        for spread in arguments.spreads:
            print(*table(named(spread), measured(arguments, folder, spread)), sep="\n", flush=True)
    except (BptError, JobError) as error:
        sys.exit(f"error: {error}")
    print(f"All runs: {folder}")


def named(spread: Sequence[float]) -> str:
    """Return the speeds as --spread takes them."""
    return ":".join(f"{speed:g}" for speed in spread)


def measured(arguments: argparse.Namespace, folder: Path, spread: Sequence[float]) -> list[Result]:
    """Measure all ways and seeds on nodes of these speeds; what the CSV file has, is read from there."""
    work = Work(arguments.samples, arguments.passes, BATCH, min(5, arguments.passes), 1)
    solver, windows = work.write(folder)
    images = QUICK_IMAGES if arguments.quick else IMAGES
    kind = "bed" if arguments.bed else "virtual"
    path = folder / f"{kind}_{arguments.samples}_{arguments.passes}.csv"
    known = {(each.spread, each.way, each.seed): each for each in read(path)}
    results = []
    for seed in range(1, arguments.seeds + 1):
        for name in dict.fromkeys((ALONE, *arguments.ways)):
            place = "1" if name == ALONE else named(spread)
            if (place, name, seed) not in known:
                weights = folder / f"{kind}.caffemodel"
                if arguments.bed:
                    learnt, weights = on_bed(solver, work, folder, spread, WAYS[name], seed)
                else:
                    learnt = on_virtual_clock(solver, spread, WAYS[name], seed, weights)
                found = 100 * accuracy(windows, weights, images)
                result = Result(place, name, seed, found, learnt.seconds, learnt.staleness, learnt.discarded)
                append_rows(path, HEAD, [result.row])
                known[place, name, seed] = result
            results.append(known[place, name, seed])
    return results


def read(path: Path) -> Iterator[Result]:
    """Yield the runs in a CSV file of this bench."""
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                found, seconds, stale = (float(row[name]) for name in ("accuracy", "seconds", "staleness"))
                yield Result(row["spread"], row["way"], int(row["seed"]), found, seconds, stale, int(row["discarded"]))


def plan_of(solver: Path, way: Way, seed: int) -> RunPlan:
    """Return the plan of a run that neither tests nor writes."""
    quiet = f"test_interval: {NEVER} test_initialization: false snapshot: 0 snapshot_after_train: false display: 0"
    text = f"random_seed: {seed} {quiet}"
    if way.strategy:
        text += f" parallel_param {{ {way.parallel} }}"
        text += without_momentum(solver) if way.strategy.exchange == "ASGD" else ""
    return resolve(read_solver(solver, [text]))


def on_virtual_clock(solver: Path, spread: Sequence[float], way: Way, seed: int, weights: Path) -> Learnt:
    """Train on the virtual clock, in one thread, so that the bits do not depend on the machine's cores."""
    torch.set_num_threads(1)
    plan = plan_of(solver, way, seed)
    return learn(plan, spread, weights) if way.strategy else learn_alone(plan, weights)


def on_bed(solver: Path, work: Work, folder: Path, spread: Sequence[float], way: Way, seed: int) -> tuple[Learnt, Path]:
    """Train on a test bed of a server and nodes that have these parts of a core."""
    hosts = {"server": 0.25} | {f"node{number}": speed for number, speed in enumerate(spread)}
    jobs = Jobs(solver, work.iterations, list(hosts), folder / named(spread).replace(":", "_"))
    with on_testbed(",".join(f"{host}:{speed:g}" for host, speed in hosts.items()), "1gbit", any_will_do=True):
        left = jobs.train(way.strategy, seed, fields=way.fields, name=way.name) if way.strategy else jobs.alone(seed)
    stale = [row.staleness for row in left.record.updates]
    return Learnt(left.record.execution_time, fmean(stale) if stale else 0.0), left.weights


def table(spread: str, results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each way."""
    ways: dict[str, list[Result]] = {}
    for result in results:
        ways.setdefault(result.way, []).append(result)
    alone = ways[ALONE]
    yield f"speeds {spread}, {len(alone)} seeds"
    rows = [("way", "accuracy %", "±", "lost", "time", "staleness", "dropped")]
    for name, each in ways.items():
        accuracies = [result.accuracy for result in each]
        error = f"{stdev(accuracies) / len(accuracies) ** 0.5:.2f}" if len(accuracies) > 1 else ""
        lost = fmean(result.accuracy for result in alone) - fmean(accuracies)
        time = fmean(result.seconds for result in each) / fmean(result.seconds for result in alone)
        rows.append((
            name, f"{fmean(accuracies):.2f}", error, "" if name == ALONE else f"{lost:+.2f}", f"{time:.2f}",
            f"{fmean(result.staleness for result in each):.1f}", f"{fmean(result.discarded for result in each):.0f}",
        ))  # fmt: skip
    yield from columns(rows, left=1)
