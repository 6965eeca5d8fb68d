"""bpt against plain PyTorch training loops: same net, same batch, in alternation, each in its own process.

eager     as anyone would write it first: contiguous, torch.optim.SGD
fused     channels-last, torch.optim.SGD(fused=True)
compiled  that, through torch.compile; needs a C++ compiler

The ratio and the ratio of peak memory are those to the fastest of them. A second table says for each net which part of
the roof an iteration of bpt reaches, and what the rest is made of; see harness/iteration_parts.py.

With --precision BFLOAT16 these run under autocast, and the last column is bpt's time in BFLOAT16 by that in FLOAT32.

With --python it is bpt.get_solver(…).step(20) against the loop that the command line runs, both on the same images from
an LMDB: what the Python face costs. Goal: at most 1.05. Beside them runs the eager loop, on a batch that is there at
once; goals of the Python face by its time: 0.70 for lenet, 0.62 for cifar10_quick and alexnet.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import bpt
from bpt.base.malloc_settings import keep_freed_memory
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_solver
from bpt.config.proto.text import to_text
from bpt.train.solver.solver import Solver
from scripts.benches.harness.arguments import explain, some_of
from scripts.benches.harness.iteration_parts import IterationParts, measure, part_lines
from scripts.benches.harness.nets import reading_net, solver_param, write_images
from scripts.benches.harness.sides import PLAIN, RATE, Side, batch_of, bpt_side, plain_side, solver_source
from scripts.benches.harness.turns import Side as Process
from scripts.benches.harness.turns import compete, serve_turns

HELP = "bpt against the fastest plain PyTorch training loop; or its Python face against its command line"
BATCHES = {"lenet": 64, "cifar10_quick": 100, "alexnet": 16, "googlenet": 8, "resnet20": 64}
ITERATIONS = {"lenet": 40, "cifar10_quick": 8, "alexnet": 2, "googlenet": 2, "resnet20": 6}  # a turn
WARM_UP = 48  # iterations of a side before it is timed
BY_PYTHON = {"lenet": 0.70, "cifar10_quick": 0.62, "alexnet": 0.62}  # the goal by the eager loop
STEP = 20  # iterations of a call
GOAL = 1.05
IMAGES = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--nets", help=f"which, separated by commas (default: all; --python: {','.join(BY_PYTHON)})")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each side (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default %(default)s)")
    parser.add_argument("--plain", type=some_of(PLAIN, "loop"), help=f"of {', '.join(PLAIN)} (default: all)")
    parser.add_argument("--engine", default="AUTO", help="bpt's engine: AUTO, CONTIGUOUS or CHANNELS_LAST")
    parser.add_argument("--precision", choices=("FLOAT32", "BFLOAT16"), default="FLOAT32", help="of all sides")
    parser.add_argument("--python", action="store_true", help="get_solver(…).step(20) against the command line's loop")


def run(arguments: argparse.Namespace) -> None:
    names = (arguments.nets or ",".join(BY_PYTHON if arguments.python else BATCHES)).split(",")
    if arguments.python:
        return by_python(names, arguments)
    variants = arguments.plain or PLAIN
    columns = "".join(f" {variant + ' ms':>12}" for variant in variants)
    half = arguments.precision != "FLOAT32"
    by_single = f" {'by FLOAT32':>10}" if half else ""
    sizes = f"{'ratio':>6} {'memory':>7}{by_single}"
    print(f"{'net':<14} {'batch':>5}{columns} {'bpt ms':>10} {sizes}  against, layout chosen")
    rows = []
    for net in names:
        words = net, BATCHES[net], arguments.threads, arguments.engine
        sides = [Process.alone("loop", kind, *words, arguments.precision) for kind in (*variants, "bpt")]
        single = [Process.alone("loop", "bpt", *words, "FLOAT32")] if half else []
        # Warm-up covers compilation, and the iterations in which bpt chooses layout and algorithms and records passes.
        compete((*sides, *single), arguments.rounds, ITERATIONS[net], WARM_UP if ITERATIONS[net] > 2 else WARM_UP // 2)
        *plain, ours = sides
        best, variant = min(zip(plain, variants, strict=True), key=lambda side: side[0].median)
        times = "".join(f" {side.median * 1e3:>12.2f}" for side in plain)
        print(
            f"{net:<14} {BATCHES[net]:>5}{times} {ours.median * 1e3:>10.2f} {ours.median / best.median:>6.3f} "
            f"{ours.last['peak_mib'] / best.last['peak_mib']:>7.3f}"
            + "".join(f" {ours.median / side.median:>10.3f}" for side in single)
            + f"  {variant}, {ours.last['layout']}",
            flush=True,
        )
        rows.append((net, ours.median, parts_of(*words, arguments.precision)))
    print("", *part_lines(rows), sep="\n")
    return None


def parts_of(*words: object) -> IterationParts:
    """What an iteration is made of, measured in a process of its own, which ``serve`` is called in with these words."""
    side = Process.alone("loop", "parts", *words)
    compete((side,), 1, 1)
    return IterationParts(**side.last["parts"])


def by_python(names: Sequence[str], arguments: argparse.Namespace) -> None:
    """The Python face against the command line's loop and the eager one, in turns of as many iterations."""
    print(f"{'net':<14} {'batch':>5} {'eager ms':>10} {'command ms':>10} {'python ms':>10}  ratios, and their goals")
    with tempfile.TemporaryDirectory() as folder:
        for net in names:
            solver = write_solver(net, arguments.engine, Path(folder))
            words = BATCHES[net], arguments.threads, arguments.engine
            command, python = (Process.alone("loop", kind, solver, *words) for kind in ("command", "python"))
            eager = Process.alone("loop", "eager_steps", net, *words)
            compete((eager, command, python), arguments.rounds, 1, 3)  # the first calls settle all choices
            times = "".join(f" {side.median / STEP * 1e3:>10.2f}" for side in (eager, command, python))
            by_command = goal_words(python.median / command.median, GOAL)
            by_eager = goal_words(python.median / eager.median, BY_PYTHON.get(net))
            print(f"{net:<14} {BATCHES[net]:>5}{times}  by command {by_command}, by eager {by_eager}", flush=True)


def goal_words(ratio: float, goal: float | None) -> str:
    """A ratio, and whether it reaches its goal, where it has one."""
    if goal is None:
        return f"{ratio:.3f}"
    return f"{ratio:.3f} ({'reaches' if ratio <= goal else 'misses'} {goal:.2f})"


def write_solver(net: str, engine: str, folder: Path) -> Path:
    """A solver's text for ``net``, and images for it."""
    images = write_images(folder / f"{net}_images", net, IMAGES)
    param = solver_param(reading_net(net, images, BATCHES[net]), RATE, engine=engine)
    path = folder / f"{net}.prototxt"
    path.write_text(to_text(param))
    return path


def serve(kind: str, net: str, batch: str, threads: str, engine: str, precision: str = "FLOAT32") -> None:
    """A side's process: "bpt" or one of PLAIN; with --python "command" or "python", and ``net`` is a solver's text, or
    "eager_steps", the eager loop in calls of as many iterations.

    "parts" answers with what an iteration of bpt is made of.
    """
    torch.set_num_threads(int(threads))
    if kind == "parts":
        keep_freed_memory()
        source = solver_source(net, int(batch), engine, precision)
        parts, _ = measure(source, *batch_of(net, int(batch)), 5 * ITERATIONS[net])
        return serve_turns(sys.stdin, lambda: None, lambda: {"parts": parts.facts()})
    step, layout = make_side(kind, net, int(batch), engine, precision)

    def facts() -> dict[str, object]:
        return {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "layout": layout()}

    return serve_turns(sys.stdin, step, facts)


def make_side(kind: str, net: str, batch: int, engine: str, precision: str = "FLOAT32") -> Side:
    if kind == "python":
        face = bpt.get_solver(net)
        return lambda: face.step(STEP), lambda: ""
    if kind == "command":
        keep_freed_memory()
        solver = Solver(read_solver(net))
        return lambda: solver.step(STEP), lambda: pb.SolverParameter.Engine.Name(
            solver.runtime.nets.train.operator.engine
        )
    data, label = batch_of(net, batch)
    source = solver_source(net, batch, engine, precision)
    if kind == "eager_steps":
        step, layout = plain_side(source, data, label, "eager")
        return lambda: [step() for _ in range(STEP)], layout
    return bpt_side(source, data, label) if kind == "bpt" else plain_side(source, data, label, kind)
