"""The experiments of the StaticLB paper: balance STATIC against UNIFORM on unlike ranks, in turn in one job.

First the speeds of the ranks are measured, as ``bpt time --profile`` does it (Fig. 3). Then the job trains, for each
batch size, in turn with equal shares (UNIFORM) and with shares by these speeds (STATIC): computation and communication
of each rank (Fig. 2, 4, 6), time of an epoch (Fig. 5, 7), and the speed-up beside the ideal one (Table 4).

    achieved speed-up = time of an iteration with UNIFORM / with STATIC
    ideal speed-up    = max_p t_p(B / P) / (B / sum_p s_p)

B is the batch, P the number of ranks, t_p(x) the seconds that rank p computes for x samples, and s_p = x_p / t_p(x_p)
its speed at the share x_p that STATIC gives it. So the ideal is a batch that all ranks finish at the same moment, at
the speeds that they have, without any exchange, against the slowest of equal shares. The achieved one has all that
training has: the exchange, which both sides pay and which so lowers the ratio, shares of whole samples, iterations
that are not all alike, and errors of the profile. It is compared with two ideals, by two measurements of t_p:

    in training: as the ranks computed in these turns, without waiting for each other
    by the profile: as it was measured before; it has all ranks busy all the time, and the machine may have been
                    another one then

Then the small networks learn with equal shares, with balanced ones, and with balanced ones and the paper's unweighted
mean of gradients, some times each (Fig. 8, 9, Table 3): for 50 epochs the one for MNIST, as in the paper, and for 30
the one for CIFAR-10, which has 300 there (--epochs 300).

Ranks are in cgroups of this machine, each with a share of the processor, half of them a quarter as fast as the others
(--replicas: how many), or on hosts of scripts/testbed (--hosts). Both need Linux and root. BatchNorm normalises each
rank's share by itself here, as in StaticLB; with ``sync_batch_norm: true`` ranks would wait for each other in every
layer. The layout is set (CHANNELS_LAST), so that no trials of it fall into the measurement.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.balance.profile import read_profile
from scripts.benches.balance import figures
from scripts.benches.balance.nets import (
    NETS,
    SMALL,
    images_to_learn,
    make_images,
    parameters,
    profile_of,
    sorted_batches,
    write_solver,
)
from scripts.benches.balance.results import (
    ACCURACIES,
    CURVES,
    SPEEDS,
    SPEEDUPS,
    TIMES,
    Compared,
    accuracy_rows,
    compared,
    curve_rows,
    outcomes,
    report,
    speed_rows,
    speedup_row,
    time_rows,
)
from scripts.benches.harness import curve
from scripts.benches.harness.arguments import add_nets, add_output, at_least, explain
from scripts.benches.harness.launch import ROOT, JobError
from scripts.benches.harness.panels import check_matplotlib
from scripts.benches.harness.replicas import replicas, unlike_shares
from scripts.benches.harness.tables import Tables
from scripts.benches.harness.testbed import end_by_signals, on_testbed, run_on_hosts
from scripts.testbeds.hosts import parse_hosts

HELP = (
    "StaticLB's experiments: balance STATIC against UNIFORM on unlike ranks; times, speed-ups, accuracy (Linux, root)"
)
BANDWIDTH = "1gbit"
FEW = 5  # replicas at most, with --quick
BATCH_TO_LEARN, SMALL_BATCH, FEW_TESTS = 128, 32, 100  # the others with --quick
EPOCHS = {"staticlb_mnist": 50, "staticlb_cifar10": 30}  # the paper: 50 and 300
FEW_EPOCHS = {"staticlb_mnist": 10, "staticlb_cifar10": 5}  # with --quick
WAYS = {  # balance, and fields of balance_param
    "UNIFORM": ("UNIFORM", ""),
    "STATIC": ("STATIC", ""),
    "STATIC, unweighted": ("STATIC", "normalizer: UNIFORM"),
}


def numbers(text: str) -> list[int]:
    """Whole numbers of at least 1, by commas, for argparse."""
    return [at_least(1)(word) for word in text.split(",")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    add_nets(parser, NETS, NETS)
    parser.add_argument("--batches", "--batch", type=numbers, help="of all ranks together (default: see nets.py)")
    parser.add_argument("--replicas", type=numbers, default="2,5,16", help="numbers of ranks (default %(default)s)")
    parser.add_argument("--hosts", help='instead, of the test bed: "a:1.0,b:0.25", or "up": of the one that is up')
    parser.add_argument("--bandwidth", default=BANDWIDTH, help="of each host's link (default %(default)s)")
    parser.add_argument("--rounds", type=at_least(1), default=4, help="turns of each side (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=6, help="of a turn, at least (default %(default)s)")
    parser.add_argument(
        "--repetitions", type=at_least(0), default=5, help="of training for accuracy (default %(default)s); 0: none"
    )
    parser.add_argument(
        "--epochs",
        type=at_least(1),
        help="of training for accuracy (default: 50 of MNIST, 30 of CIFAR-10; few with --quick)",
    )
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="folder of data sets (default %(default)s)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small batches, two ranks (five, if --replicas asks for as many), two networks unless --nets says which",
    )
    parser.add_argument("--folder", type=Path, help="keep solvers and profiles there (default: nowhere)")
    add_output(parser, ROOT / "bench" / "balance", "CSV and PNG files")


def made_quick(arguments: argparse.Namespace) -> None:
    """Smaller sizes."""
    arguments.replicas = [min(arguments.replicas[0], FEW)]
    arguments.rounds, arguments.seconds = 2, 0.2
    arguments.repetitions = min(arguments.repetitions, 1)
    if arguments.nets == list(NETS):
        arguments.nets = ["staticlb_mnist", "resnet20"]


@dataclass(frozen=True)
class Place:
    """Where ranks run.

    Attributes:
        name: for files.
        words: for people.
        ranks: a name of each, which says its share of the processor.
        run: does a module's work on all of them, and returns the first one's answer.
    """

    name: str
    words: str
    ranks: Sequence[str]
    run: Callable[[str, object], Any]


@contextmanager
def replicas_here(number: int, folder: Path) -> Iterator[Place]:
    """So many unlike ranks in cgroups."""
    shares = unlike_shares(number, len(os.sched_getaffinity(0)))
    names = [f"{share:.3g}" for share in shares]
    with replicas(shares) as ready:
        words = f"{number} ranks on one host, of {', '.join(names)} cores"
        yield Place(f"replicas{number}", words, names, lambda module, work: ready.run(module, work, folder))


@contextmanager
def hosts_here(hosts: str, bandwidth: str, folder: Path) -> Iterator[Place]:
    """A rank a slot on the test bed."""
    with on_testbed("" if hosts == "up" else hosts, bandwidth, any_will_do=hosts == "up") as words:
        text = words.partition("hosts ")[2].partition(";")[0]
        names = [f"{host.name}:{host.share:g}" for host in parse_hosts(text) for _ in range(host.slots)]
        yield Place(f"hosts{len(names)}", words, names, lambda module, work: run_on_hosts(module, work, folder))


def measure(name: str, place: Place, arguments: argparse.Namespace, folder: Path, tables: Tables) -> list[Compared]:
    """Profile one net, train it with both balances in batches of all sizes, and tell what came out."""
    setting = NETS[name]
    batches = sorted_batches(arguments.batches or (setting.quick if arguments.quick else setting.batches))
    images = make_images(setting.shape, folder, arguments.quick)
    solvers = [write_solver(name, batch, images, folder) for batch in batches]
    profile_path = profile_of(name, folder)
    answers = place.run("balance.ranks", order_of(solvers, profile_path, arguments.rounds, arguments))
    profile = read_profile(str(profile_path))
    results = []
    for answer in reversed(answers):
        result = compared(name, place.ranks, profile, outcomes(answer))
        results.append(replace(result, epoch=setting.epoch, parameters=parameters(solvers[0])))
        for line in report(results[-1]):
            print(line, flush=True)
    tables.add("speeds", SPEEDS, speed_rows(place.name, name, place.ranks, profile))
    tables.add("times", TIMES, (row for result in results for row in time_rows(place.name, result)))
    tables.add("speedups", SPEEDUPS, [speedup_row(place.name, result) for result in results])
    stem = arguments.out / f"{place.name}_{name}"
    figures.draw_speeds(stem.with_name(f"{stem.name}_speeds.png"), f"{name}: {place.words}", place.ranks, profile)
    figures.draw_times(stem.with_name(f"{stem.name}_times.png"), f"{name}: {place.words}", results)
    return results


def order_of(solvers: Sequence[Path], profile: Path, rounds: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """What ranks are told; see ranks.py."""
    return {
        "solvers": [str(solver) for solver in solvers], "profile": str(profile), "rounds": rounds,
        "seconds": arguments.seconds, "rough": arguments.quick,
    }  # fmt: skip


def iterations_to_learn(name: str, train: int, batch: int, arguments: argparse.Namespace) -> int:
    """How many iterations a network trains for its accuracy.

    Args:
        train: samples of the training set.
    """
    epochs: int = arguments.epochs or (FEW_EPOCHS if arguments.quick else EPOCHS)[name]
    return epochs * train // batch


def learn(name: str, place: Place, arguments: argparse.Namespace, folder: Path, tables: Tables) -> None:
    """Train one net in all ways, some times each, and tell its accuracy."""
    data, train, test = images_to_learn(name, arguments.data, folder, arguments.quick)
    batch, test = (SMALL_BATCH, min(test, FEW_TESTS)) if arguments.quick else (BATCH_TO_LEARN, test)
    iterations = iterations_to_learn(name, train, batch, arguments)
    solver, profile = (folder / f"{name}_to_learn.{kind}" for kind in ("prototxt", "json"))  # of these images' size
    curves: dict[str, list[list[curve.Point]]] = {}
    for way, (balance, fields) in WAYS.items():
        param = f'balance_param {{ profile: "{profile}" {fields} }}'
        override = f"parallel_param {{ balance: {balance} {param} }}"
        curves[way] = []
        for seed in range(arguments.repetitions):
            curve.write_solver(
                name, [override], data, batch, test, solver, random_seed=seed + 1,
                engine=pb.SolverParameter.CHANNELS_LAST,
            )  # fmt: skip
            if not profile.exists():
                place.run("balance.ranks", order_of([solver], profile, 0, arguments))
            answer = place.run("harness.curve", curve.order_of(solver, max(iterations, curve.POINTS)))
            curves[way].append(curve.points_of(answer))
    tables.add("accuracy_by_time", CURVES, curve_rows(place.name, name, batch, train, curves))
    rows = list(accuracy_rows(place.name, name, batch, train, curves))
    tables.add("accuracy", ACCURACIES, rows)
    for row in rows:
        each = dict(zip(ACCURACIES, row, strict=True))
        print(
            f"{name}, {each['balance']}: accuracy at most {each['maximum']:.1%} ± {each['maximum_deviation']:.1%}, "
            f"last {each['last']:.1%} ± {each['last_deviation']:.1%}, after {each['epochs']:.3g} epochs, "
            f"{each['seconds']:.1f} s", flush=True,
        )  # fmt: skip
    path = arguments.out / f"{place.name}_{name}_accuracy.png"
    figures.draw_accuracy(path, f"{name}: {place.words}", train, batch, curves)


def places(arguments: argparse.Namespace, folder: Path) -> Iterator[Place]:
    """Those asked for, one after the other."""
    if arguments.hosts:
        with hosts_here(arguments.hosts, arguments.bandwidth, folder) as place:
            yield place
        return
    for number in arguments.replicas:
        with replicas_here(number, folder) as place:
            yield place


def run(arguments: argparse.Namespace) -> None:
    check_matplotlib()
    end_by_signals()
    if arguments.quick:
        made_quick(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    tables = Tables(arguments.out)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder.resolve() if arguments.folder else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for place in places(arguments, folder):
                print(place.words, flush=True)
                results = []
                for name in arguments.nets:
                    results += measure(name, place, arguments, folder, tables)
                title = f"time of an epoch: {place.words}"
                figures.draw_epochs(arguments.out / f"{place.name}_epochs.png", title, results)
                for name in SMALL:
                    if name in arguments.nets and arguments.repetitions:
                        learn(name, place, arguments, folder, tables)
        except (JobError, UserError) as error:
            sys.exit(f"error: {error}")
    print(f"numbers and figures: {arguments.out}")
