"""The experiments of the MPI-FC paper: split fully connected layers, on this machine or on the test bed.

A layer of n_b inputs and n_t outputs is timed forward and backward on one rank ("whole"), on a master and K slaves
(MASTER_SLAVE, Algorithms 1 and 2) and on K ranks alike (PEER, Fig. 6), with a batch in one pass and in as many passes
of one sample (section 4.2); the elements that it sends stand beside those of Table 1. Then networks whose fully
connected layers are split train in the same ways, and their accuracy is drawn against the time (Fig. 4 and 5): LeNet on
the digits, the quick CIFAR-10 network on CIFAR-10 or, where that is not in --data, on images made by a formula.

Ranks compute with one thread. Ways with equally many ranks take turns in one job; times are medians, of the slowest
rank. Where ranks are more than cores, what they wait for each other is in the times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from scripts.benches.harness.arguments import add_output, at_least, explain, some_of
from scripts.benches.harness.curve import Point, train, write_solver
from scripts.benches.harness.launch import ROOT, JobError, run_worker
from scripts.benches.harness.panels import check_matplotlib
from scripts.benches.harness.tables import Tables
from scripts.benches.harness.testbed import call, end_by_signals, on_testbed, run_on_hosts
from scripts.benches.mpifc import figures
from scripts.benches.mpifc.layer_times import LAYERS, Timed, differing, layer_rows, layer_table
from scripts.benches.mpifc.ways import MASTER_SLAVE, PEER, WHOLE, Way, ways_of

HELP = "MPI-FC's experiments: split layers against K and size, elements against Table 1, batches of 1, accuracy by time"
NETS = {"lenet": 360, "cifar10_quick": 500}  # images of the test
Job = Callable[[object, int], Any]  # does an order on so many ranks


def numbers(text: str) -> list[int]:
    """Whole numbers above 0, by commas, for argparse."""
    return sorted({at_least(1)(word) for word in text.split(",")})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--slaves", type=numbers, default="1,2,4", help="K (default %(default)s)")
    parser.add_argument("--inputs", type=at_least(1), default=2048, help="n_b of the layer (default %(default)s)")
    parser.add_argument("--outputs", type=numbers, default="512,1024,2048,4096", help="n_t (default %(default)s)")
    parser.add_argument("--batch", type=at_least(1), default=64, help="samples of an iteration (default %(default)s)")
    parser.add_argument("--rounds", type=at_least(1), default=4, help="turns of each way (default %(default)s)")
    parser.add_argument("--iterations", type=at_least(1), default=5, help="of a turn (default %(default)s)")
    nets = some_of(NETS, "network")
    parser.add_argument("--nets", type=nets, default=",".join(NETS), help="that are trained (default %(default)s)")
    parser.add_argument("--train", type=at_least(1), default=600, help="iterations of these (default %(default)s)")
    parser.add_argument("--ones", type=at_least(1), help="iterations in passes of one sample (default: as --train)")
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="folder of data sets (default %(default)s)")
    parser.add_argument("--hosts", help="also on a test bed of these, such as a:0.5,b:0.5,c:0.5 (Linux, root)")
    parser.add_argument("--bandwidth", default="1gbit", help="of each host's link (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes, K up to 2, two minutes")
    add_output(parser, ROOT / "bench" / "mpifc", "CSV and PNG files")


def made_quick(arguments: argparse.Namespace) -> None:
    """Smaller layers and shorter runs; the batch is the paper's (section 4.2: 64 passes of 1)."""
    arguments.slaves, arguments.inputs, arguments.outputs = [1, 2], 512, [256, 1024]
    arguments.rounds, arguments.iterations = 2, 3
    arguments.train, arguments.ones = 60, 5


def time_layers(arguments: argparse.Namespace, run: Job, note: Callable[[str], None]) -> list[Timed]:
    """All ways with all sizes; a job for each number of ranks."""
    ways = ways_of(arguments.slaves, arguments.batch)
    found: list[Timed] = []
    for ranks in sorted({way.ranks for way in ways}):
        note(f"layers on {ranks} rank{'s' * (ranks > 1)}")
        order = {
            "ways": [asdict(way) for way in ways if way.ranks == ranks], "inputs": arguments.inputs,
            "outputs": arguments.outputs, "rounds": arguments.rounds, "iterations": arguments.iterations,
        }  # fmt: skip
        for case in run(order, ranks):
            forward, backward, update = case["elements"]
            sent, (first, second, third) = (forward, backward, update), case["multiply_adds"]
            found.append(Timed(Way(**case["way"]), case["outputs"], case["laps"], sent, (first, second, third)))
    place = {way: number for number, way in enumerate(ways)}
    return sorted(found, key=lambda timed: (timed.outputs, place[timed.way]))


CURVES = ("net", "scheme", "K", "batch", "passes", "iteration", "seconds", "accuracy")
Curves = Mapping[Way, Sequence[Point]]


def train_net(name: str, arguments: argparse.Namespace, folder: Path, note: Callable[[str], None]) -> Curves:
    """The accuracy of a network by the time of its training: whole and with the most slaves, batches whole and of 1."""
    most = max(arguments.slaves)
    batch = arguments.batch
    ways = [Way(WHOLE, 1, batch), Way(MASTER_SLAVE, most, batch), Way(PEER, max(most, 2), batch)]
    ways += [Way(WHOLE, 1, 1, batch), Way(MASTER_SLAVE, most, 1, batch)]
    data, solver = images_of(name, arguments.data, folder), folder / "solver.prototxt"
    curves = {}
    for way in ways:
        note(f"{name}: {figures.label(way)}")
        write_solver(name, [way.parallel], data, way.batch, NETS[name], solver, way.passes, "MpiFc")
        iterations = arguments.ones if way.passes > 1 and arguments.ones else arguments.train
        curves[way] = train(solver, iterations, way.ranks, folder)
    return curves


def images_of(name: str, data: Path, folder: Path) -> Path:
    """Where the data set of a network is; made in ``folder``, if need be."""
    if name == "lenet":
        call(ROOT / "scripts" / "make_digits.py", str(folder / "digits"))
        return folder / "digits"
    if (data / "cifar10" / "train_lmdb").exists():
        return data / "cifar10"
    words = ["--shape", "3x32x32", "--train", "10000", "--test", str(NETS[name])]
    call(ROOT / "scripts" / "make_synthetic.py", str(folder / "images"), *words)
    return folder / "images"


def measure(arguments: argparse.Namespace, hosts: str, job: Job, tables: Tables) -> bool:
    """Time the layers on some hosts; whether what they have sent is what Table 1 says."""
    layers = time_layers(arguments, job, _note)
    rows = list(layer_rows(hosts, arguments.inputs, layers))
    print(f"{hosts}: a layer of {arguments.inputs} inputs, {arguments.batch} samples an iteration")
    for line in layer_table(rows):
        print(f"  {line}", flush=True)
    tables.add("layers", LAYERS, rows)
    stem = arguments.out / ("testbed" if arguments.hosts and hosts != "one host" else "one_host")
    figures.draw_layers(stem, hosts, layers)
    for row in differing(rows):
        print(f"  NOT AS IN TABLE 1: {dict(zip(LAYERS, row, strict=True))}")
    return not differing(rows)


def run(arguments: argparse.Namespace) -> None:
    check_matplotlib()
    if arguments.hosts:
        end_by_signals()
    if arguments.quick:
        made_quick(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    tables = Tables(arguments.out)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        try:
            good = measure(arguments, "one host", partial(_here, folder), tables)
            for name in arguments.nets:
                curves = train_net(name, arguments, folder, _note)
                tables.add(f"{name}_accuracy", CURVES, curve_rows(name, curves))
                figures.draw_curves(arguments.out / f"{name}_accuracy.png", name, curves)
                for way, points in curves.items():
                    _, seconds, accuracy = points[-1]
                    print(f"{name}, {figures.label(way)}: {accuracy:.1%} after {seconds:.1f} s", flush=True)
            if arguments.hosts:
                words = stack.enter_context(on_testbed(arguments.hosts, arguments.bandwidth))
                good &= measure(arguments, words, partial(_on_hosts, folder), tables)
        except JobError as error:
            sys.exit(f"error: {error}")
    print(f"numbers and figures: {arguments.out}")
    if not good:
        sys.exit(1)


def curve_rows(name: str, curves: Curves) -> Iterator[tuple[object, ...]]:
    """Rows in the columns of CURVES."""
    for way, points in curves.items():
        for point in points:
            yield name, way.scheme, way.slaves, way.batch, way.passes, *point


def _here(folder: Path, order: object, ranks: int) -> Any:
    return run_worker("mpifc.ranks", order, folder, ranks, threads=1)


def _on_hosts(folder: Path, order: object, ranks: int) -> Any:
    return run_on_hosts("mpifc.ranks", order, folder, ranks)


def _note(line: str) -> None:
    """How far it is goes to stderr: the tables stay readable."""
    print(line, file=sys.stderr, flush=True)
