"""BPT-CNN's outer layer on unlike hosts: {SGWU, AGWU} x {UDPA, IDPA} and one process, on ``scripts/testbed``.

A network (LeNet) learns the digits with the same K in each way: every sample is trained K times.
UDPA is ``balance: UNIFORM``. For each seed all ways are run in turn, in one order and then in the other, and one
process on the fastest host. The first host is the server; it computes nothing but tests.

    seconds   execution time: from the moment that all ranks are ready until the last weights are merged, and the
              training alone of one process. Tests in between delay no worker
    accuracy  of the last weights, on the 360 test images, each through all 25 windows of 28 x 28 pixels that training
              may look through. 360 images alone are too few to tell half a point: one of them is 0.28
    s to      until a test on the way, on the 360 images, reached that accuracy

The digits are 1,437; they are repeated until a pass takes seconds, as it does with a real data set, and every pass sees
them through other windows. An odd number A of batches is chosen, since Eq. 6 then trains each sample exactly K times.

Then ``bpt simulate`` plays the same runs on a cluster made of what a calibration measured: how many samples a second
each host trains while all do, how iterations vary, how long messages take, how long the server takes to merge.

Asynchronous SGD (DistBelief's way) is the rival, and --nets has networks of Table 2 learn the digits: Fig. 11 (accuracy
and AUC by epochs), Fig. 12 (execution time), Table 1 (passes to four accuracies, passes.csv) and Fig. 13 (time to an
accuracy, axes.csv: by computing nodes, and by threads of the inner layer on one node of this host), of real runs.
--quick takes this host alone, without a test bed and without root, and little work: it shows that all runs, no speeds.
--full tells what a cluster would run.

How many passes there are decides which way has learnt most. Each of two nodes makes half of the iterations, and its
updates are merged once a pass. Eq. 10 also multiplies an update by its accuracy Q, a tenth at first. So one process and
SGWU, which divides the Q's by their sum, are ahead at first. Measured with case 1 of Table 2 on the digits, two nodes:

    K = 5    AGWU+IDPA 0.47, 0.64 and 0.33 (seeds 1 to 3); without Q 0.59, 0.68 and 0.36, by
             --agwu "weigh_by_accuracy: false"; seed 1: SGWU+UDPA 0.61, asynchronous SGD 0.67, one process 0.81
    K = 20   seed 1: AGWU+IDPA 0.84, without Q 0.90; SGWU+UDPA 0.89, one process 0.92
    K = 40   AGWU+IDPA 0.92 and 0.88 (seed 1, twice), 0.92 (seed 2); asynchronous SGD 0.90 and 0.92 (seed 1), 0.59
             (seed 2); seed 1: SGWU+UDPA 0.92, one process 0.93

So the cause is too few passes, and Q is a smaller part of it. The paper trains 100 passes, and --quick trains 40 over
few samples. What is left between the ways then is less than one seed tells: with two nodes the factors of Eq. 9 add up
to 2 (to m / (m - 1)), so that AGWU's tests swing from 0.81 to 0.95 in the last eight passes, and from 0.90 to 0.95 with
--agwu "normalizer: ALL", which learns more slowly (0.91 and 0.88 after 40 passes, 0.30 and 0.50 after 5).

What is in the folder is not done again: a bench that was stopped goes on, if it is started with the same settings.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bpt.base.errors import BptError
from bpt.perf.simulate.simulation import PAPER_STRATEGIES, Strategy
from bpt.train.outer.report import compare
from bpt.train.outer.report.style import check_matplotlib
from scripts.benches.bptcnn import axes, results, simulation
from scripts.benches.bptcnn.results import Run, Runs
from scripts.benches.harness.arguments import add_nets, add_output, at_least, explain
from scripts.benches.harness.digits import accuracy
from scripts.benches.harness.launch import ROOT, JobError
from scripts.benches.harness.outer_jobs import ALONE, NETS, RIVAL, Jobs, Left, Work
from scripts.benches.harness.tables import write_rows
from scripts.benches.harness.testbed import add_hosts, call, end_by_signals, on_testbed
from scripts.testbeds.hosts import parse_hosts

HELP = "BPT-CNN: SGWU and AGWU with UDPA and IDPA on a server and three unlike hosts (Linux, root)"
HOSTS, BANDWIDTH = "server:0.25,a:1.0,b:0.5,c:0.25", "1gbit"
IMAGES = 360 * 25
FEW_IMAGES = IMAGES // 4  # with --quick
QUICK = {
    "hosts": "server:0.25,a:1.0,b:0.5", "seeds": 1, "samples": 1437, "batches": 3, "tests": 1,
    "level": 0.9, "servers": 1,
}  # fmt: skip
PASSES, QUICK_PASSES = 10, 40  # K; with few of them nobody has learnt much, see above


def add_arguments(parser: argparse.ArgumentParser) -> None:
    number = at_least(1)
    explain(parser, __doc__)
    add_hosts(parser, HOSTS, BANDWIDTH, "the server, then the fastest first")
    parser.add_argument("--seeds", type=number, default=3, help="how many, from 1 on (default %(default)s)")
    parser.add_argument("--samples", type=number, default=23040, help="of the data set (default %(default)s)")
    parser.add_argument("--passes", type=number, help=f"K (default {PASSES}, with --quick {QUICK_PASSES})")
    parser.add_argument("--batch", type=number, default=64, help="samples of an iteration (default %(default)s)")
    parser.add_argument("--batches", type=number, default=5, help="A, of IDPA (default %(default)s)")
    parser.add_argument("--tests", type=number, default=4, help="during a pass (default %(default)s)")
    parser.add_argument("--level", type=float, default=0.97, help="accuracy to take the time to (default %(default)s)")
    parser.add_argument("--calibrate", type=float, default=10, help="seconds of it (default %(default)s)")
    parser.add_argument("--servers", type=at_least(0), default=0, help="parameter servers apart (default %(default)s)")
    parser.add_argument("--rival", action="store_true", help="has no effect: asynchronous SGD is always trained")
    parser.add_argument("--agwu", default="", metavar="FIELDS", help="of agwu_param, for SGWU and AGWU")
    parser.add_argument("--quick", action="store_true", help="little work on this host alone; a parameter server, too")
    parser.add_argument("--full", action="store_true", help="tell what a cluster would run, and end")
    add_nets(parser, NETS, ["lenet"])
    parser.set_defaults(net="lenet")
    add_output(parser, ROOT / "bench" / "bptcnn", "what runs leave, CSV and PNG files")


def run(arguments: argparse.Namespace) -> None:
    if arguments.full:
        print("\n".join(on_a_cluster()))
        return
    end_by_signals()
    try:
        check_matplotlib()
        if arguments.quick:
            arguments = argparse.Namespace(**vars(arguments) | QUICK)
        arguments.passes = arguments.passes or (QUICK_PASSES if arguments.quick else PASSES)
        names = arguments.nets
        for name in names:
            print(f"{name}:")
            out = arguments.out / name.replace("/", "_") if len(names) > 1 else arguments.out
            _run(argparse.Namespace(**vars(arguments) | {"net": name, "out": out}))
    except (BptError, JobError) as error:
        sys.exit(f"error: {error}")


def _run(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    keep_settings(arguments, folder / "settings.json")
    call(ROOT / "scripts" / "make_digits.py", str(ROOT / "data" / "digits"))
    amounts = arguments.samples, arguments.passes, arguments.batch, arguments.batches, arguments.tests
    work = Work(*amounts, arguments.net)
    solver, windows = work.write(folder)
    hosts = [host.name for host in parse_hosts(arguments.hosts)]
    jobs = Jobs(solver, work.iterations, hosts, folder, arguments.servers, not arguments.quick, arguments.agwu)
    ways = (*PAPER_STRATEGIES, RIVAL)
    seeds = range(1, arguments.seeds + 1)
    calibration = None
    if arguments.quick:
        left = measure(jobs, seeds, ways)
        along = list(axes.by_nodes(jobs, seeds))
    else:
        with on_testbed(arguments.hosts, arguments.bandwidth) as words:
            print(words, flush=True)
            if not arguments.servers:  # the simulator has one
                calibration = simulation.Calibration.read(jobs.calibrate(arguments.calibrate))
            left = measure(jobs, seeds, ways)
            along = list(axes.by_nodes(jobs, seeds))
    here = Jobs(solver, work.iterations, hosts, folder, arguments.servers, False, arguments.agwu)
    along += axes.by_threads(here, seeds, axes.numbers_of_threads(len(os.sched_getaffinity(0))))
    images = FEW_IMAGES if arguments.quick else IMAGES
    runs = {
        name: [Run(seed, run.record, accuracy(windows, run.weights, images), run.others) for seed, run in each.items()]
        for name, each in left.items()
    }
    print(f"{work.net}, {work.samples:,} samples, K = {work.passes}, batches of {work.batch}, A = {work.batches}")
    verdicts = [] if arguments.quick else results.verdicts(runs)  # ranks that share this host's cores show no speeds
    for line in (*results.table(runs, arguments.level), *verdicts):
        print(line)
    write_rows(folder / "runs.csv", results.RUNS, results.run_rows(runs, arguments.level))
    print(*results.level_table(runs), *axes.table(along), sep="\n")
    write_rows(folder / "passes.csv", results.PASSES, results.level_rows(runs))
    write_rows(folder / "axes.csv", axes.HEAD, (run.row for run in along))
    if calibration:
        simulated = simulation.simulate(solver, calibration, folder / "cluster.prototxt")
        for line in simulation.compared(simulated, runs):
            print(line)
        rows = simulation.simulated_rows(simulated, runs)
        write_rows(folder / "simulated.csv", simulation.SIMULATED, rows)
    draw(runs, folder, work.net)
    axes.draw(along, folder, f"{work.net} on digits")
    print(f"CSV files and figures: {folder}")


def measure(
    jobs: Jobs, seeds: Iterable[int], ways: Sequence[Strategy] = PAPER_STRATEGIES
) -> dict[str, dict[int, Left]]:
    """All ways with all seeds, in turn: name of the way → seed → what the run has left."""
    left: dict[str, dict[int, Left]] = {name: {} for name in (*map(str, ways), ALONE)}
    for seed in seeds:
        for way in ways if seed % 2 else ways[::-1]:
            left[str(way)][seed] = jobs.train(way, seed)
            _tell(str(way), seed, left[str(way)][seed])
        left[ALONE][seed] = jobs.alone(seed)
        _tell(ALONE, seed, left[ALONE][seed])
    return left


def on_a_cluster() -> Iterator[str]:
    """What the paper's experiments would be on a cluster, command by command."""
    yield "# ImageNet as an LMDB (docs/data.md) in data/imagenet, for all; hosts.txt: the server, then the nodes"
    yield "# Fig. 11, Table 1 and Fig. 13: accuracy and AUC by epochs and by time, and the rival"
    yield _command(30, 1, "AGWU", "IDPA", 100)
    yield _command(30, 1, "ASGD", "UNIFORM", 100, " momentum: 0 base_lr: 0.1", threads=0)
    yield "# Fig. 12 (b), 13 (a), 14 (c), 15: 5 to 35 nodes"
    yield from (_command(nodes, 1, "AGWU", "IDPA", 100) for nodes in range(5, 36, 5))
    yield "# Fig. 14 (a): SGWU and AGWU x UDPA and IDPA on the networks of Table 2"
    for case in range(1, 8):
        yield from (_command(30, case, way.exchange, way.balance, 100) for way in PAPER_STRATEGIES)
    yield "# Fig. 13 (b), 14 (d): threads of each node"
    yield from (_command(30, 1, "AGWU", "IDPA", 100, threads=threads) for threads in (1, 2, 4, 8, 16))
    yield "# Fig. 12 (a), 14 (b): 100,000 to 700,000 samples: as many records in data/imagenet/train_lmdb"


def _command(nodes: int, case: int, exchange: str, balance: str, passes: int, more: str = "", threads: int = 8) -> str:
    """``threads`` of the inner layer, which all of BPT-CNN's runs have; 0: the library's threads."""
    inner = " inner_param { engine: TASK_DAG }" * (threads > 0)
    own = f"parallel_param {{ exchange: {exchange} balance: {balance}{inner} }}"
    solver = f"prototxt/bpt_cnn/case{case}/solver.prototxt"
    iterations = 600_000 * passes // 256
    prefix = f"case{case}_{exchange}_{balance}_{nodes}_{threads}"
    limit = f"-x OMP_NUM_THREADS={threads} " * (threads > 0)
    return (
        f"mpirun --hostfile hosts.txt -n {nodes + 1} {limit}bpt train --solver {solver} "
        f"--set '{own} max_iter: {iterations} snapshot_prefix: \"{prefix}\"{more}'"
    )


def keep_settings(arguments: argparse.Namespace, path: Path) -> None:
    """Write down what runs depend on; those of other settings must not be taken for runs of these."""
    names = ("hosts", "bandwidth", "samples", "passes", "batch", "batches", "tests", "net", "servers", "quick", "agwu")
    text = json.dumps({name: getattr(arguments, name) for name in names}, indent=1)
    if path.exists() and path.read_text() != text:
        sys.exit(f"{path.parent} has runs with other settings ({path.name}); remove it, or give another one with --out")
    path.write_text(text)


def draw(runs: Runs, folder: Path, net: str = "LeNet") -> None:
    """The figures."""
    records = {name: [run.record for run in each] for name, each in runs.items()}
    seeds = len(records[ALONE])
    compare(records, folder, f"{net} on digits, {seeds} seed{'s' * (seeds > 1)}")


def _tell(name: str, seed: int, left: Left) -> None:
    print(
        f"  {name}, seed {seed}: {left.record.execution_time:.2f} s (others used {left.others:.2f} cores)", flush=True
    )
