"""BPT-CNN's outer layer on unlike hosts: {SGWU, AGWU} x {UDPA, IDPA} and one process, on ``scripts/testbed``.

LeNet learns the digits with the same K in each way: every sample is trained K times. UDPA is ``balance: UNIFORM``. For
each seed all ways are run in turn, in one order and then in the other, and one process on the fastest host. The first
host is the server; it computes nothing but tests.

    seconds   execution time: from the moment that all ranks are ready until the last weights are merged, and the
              training alone of one process. Tests in between delay no worker
    accuracy  of the last weights, on the 360 test images, each through all 25 windows of 28 x 28 pixels that training
              may look through. 360 images alone are too few to tell half a point: one of them is 0.28
    s to      until a test on the way, on the 360 images, reached that accuracy

The digits are 1,437; they are repeated until a pass takes seconds, as it does with a real data set, and every pass sees
them through other windows. An odd number A of batches is chosen, since Eq. 6 then trains each sample exactly K times.

Then ``bpt simulate`` plays the same runs on a cluster made of what a calibration measured: how many samples a second
each host trains while all do, how iterations vary, how long messages take, how long the server takes to merge.

What is in the folder is not done again: a bench that was stopped goes on, if it is started with the same settings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from bpt.errors import BptError
from bpt.report.outer import compare
from bpt.report.outer.style import check_matplotlib
from bpt.simulate.simulation import THE_FOUR
from scripts.benches.bptcnn import results, simulation
from scripts.benches.bptcnn.data import accuracy
from scripts.benches.bptcnn.jobs import ALONE, Jobs, Left, Work
from scripts.benches.bptcnn.results import Run, Runs
from scripts.benches.harness.arguments import at_least, explain
from scripts.benches.harness.launch import ROOT, JobError
from scripts.benches.harness.tables import write_rows
from scripts.benches.harness.testbed import add_hosts, call, end_by_signals, on_testbed
from scripts.testbeds.hosts import parse_hosts

HELP = "BPT-CNN: SGWU and AGWU with UDPA and IDPA on a server and three unlike hosts (Linux, root)"
HOSTS, BANDWIDTH = "server:0.25,a:1.0,b:0.5,c:0.25", "1gbit"
IMAGES = 360 * 25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    number = at_least(1)
    explain(parser, __doc__)
    add_hosts(parser, HOSTS, BANDWIDTH, "the server, then the fastest first")
    parser.add_argument("--seeds", type=number, default=3, help="how many, from 1 on (default %(default)s)")
    parser.add_argument("--samples", type=number, default=23040, help="of the data set (default %(default)s)")
    parser.add_argument("--passes", type=number, default=10, help="K (default %(default)s)")
    parser.add_argument("--batch", type=number, default=64, help="samples of an iteration (default %(default)s)")
    parser.add_argument("--batches", type=number, default=5, help="A, of IDPA (default %(default)s)")
    parser.add_argument("--tests", type=number, default=4, help="during a pass (default %(default)s)")
    parser.add_argument("--level", type=float, default=0.97, help="accuracy to take the time to (default %(default)s)")
    parser.add_argument("--calibrate", type=float, default=10, help="seconds of it (default %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "bench" / "bptcnn", help="folder for what runs leave, CSV and PNG files"
    )


def run(arguments: argparse.Namespace) -> None:
    end_by_signals()
    try:
        check_matplotlib()
        _run(arguments)
    except (BptError, JobError) as error:
        sys.exit(f"error: {error}")


def _run(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    keep_settings(arguments, folder / "settings.json")
    call(ROOT / "scripts" / "make_digits.py", str(ROOT / "data" / "digits"))
    work = Work(arguments.samples, arguments.passes, arguments.batch, arguments.batches, arguments.tests)
    solver, windows = work.write(folder)
    hosts = [host.name for host in parse_hosts(arguments.hosts)]
    jobs = Jobs(solver, work.iterations, hosts, folder)
    with on_testbed(arguments.hosts, arguments.bandwidth) as words:
        print(words, flush=True)
        calibration = simulation.Calibration.read(jobs.calibrate(arguments.calibrate))
        left = measure(jobs, range(1, arguments.seeds + 1))
    runs = {
        name: [Run(seed, run.record, accuracy(windows, run.weights, IMAGES), run.others) for seed, run in each.items()]
        for name, each in left.items()
    }
    simulated = simulation.simulate(solver, calibration, folder / "cluster.prototxt")
    print(f"LeNet, {work.samples:,} samples, K = {work.passes}, batches of {work.batch}, A = {work.batches}")
    for line in (
        *results.table(runs, arguments.level),
        *results.verdicts(runs),
        *simulation.compared(simulated, runs),
    ):
        print(line)
    write_rows(folder / "runs.csv", results.RUNS, results.run_rows(runs, arguments.level))
    rows = simulation.simulated_rows(simulated, runs)
    write_rows(folder / "simulated.csv", simulation.SIMULATED, rows)
    draw(runs, folder)
    print(f"CSV files and figures: {folder}")


def measure(jobs: Jobs, seeds: Iterable[int]) -> dict[str, dict[int, Left]]:
    """All ways with all seeds, in turn: name of the way → seed → what the run has left."""
    left: dict[str, dict[int, Left]] = {name: {} for name in (*map(str, THE_FOUR), ALONE)}
    for seed in seeds:
        for way in THE_FOUR if seed % 2 else THE_FOUR[::-1]:
            left[str(way)][seed] = jobs.train(way, seed)
            _tell(str(way), seed, left[str(way)][seed])
        left[ALONE][seed] = jobs.alone(seed)
        _tell(ALONE, seed, left[ALONE][seed])
    return left


def keep_settings(arguments: argparse.Namespace, path: Path) -> None:
    """Write down what runs depend on; those of other settings must not be taken for runs of these."""
    names = ("hosts", "bandwidth", "samples", "passes", "batch", "batches", "tests")
    text = json.dumps({name: getattr(arguments, name) for name in names}, indent=1)
    if path.exists() and path.read_text() != text:
        sys.exit(f"{path.parent} has runs with other settings ({path.name}); remove it, or give another one with --out")
    path.write_text(text)


def draw(runs: Runs, folder: Path) -> None:
    """The figures."""
    records = {name: [run.record for run in each] for name, each in runs.items()}
    seeds = len(records[ALONE])
    compare(records, folder, f"LeNet on digits, {seeds} seed{'s' * (seeds > 1)}")


def _tell(name: str, seed: int, left: Left) -> None:
    print(
        f"  {name}, seed {seed}: {left.record.execution_time:.2f} s (others used {left.others:.2f} cores)", flush=True
    )
