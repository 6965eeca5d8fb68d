"""What tracing costs: training with and without ``--trace``, in turns of one process."""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext

import torch

from bpt.base.malloc_settings import keep_freed_memory
from bpt.config.plan.resolve import resolve
from bpt.perf.trace.recorder import Recorder
from bpt.train.runtime.binding import bind
from scripts.benches.harness.sides import batch_of, fed, solver_source

HELP = "training with --trace against training without"
BATCHES = {"lenet": 64, "cifar10_quick": 100}
GOAL = 1.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nets", default="lenet", help=f"which of {','.join(BATCHES)}, separated by commas")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each side (default %(default)s)")
    parser.add_argument("--iterations", type=int, default=20, help="of a turn (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()  # as the command line does
    print(f"{'net':<14} {'batch':>5} {'without ms':>10} {'with ms':>10} {'ratio':>6}  goal {GOAL}")
    for net in arguments.nets.split(","):
        without, traced = seconds_of(net, arguments.rounds, arguments.iterations)
        ratio = statistics.median(traced) / statistics.median(without)
        print(
            f"{net:<14} {BATCHES[net]:>5} {statistics.median(without) * 1e3:>10.3f} "
            f"{statistics.median(traced) * 1e3:>10.3f} {ratio:>6.3f}",
            flush=True,
        )


def seconds_of(net: str, rounds: int, iterations: int) -> tuple[list[float], list[float]]:
    """Seconds of each iteration without and with a recorder."""
    data, label = batch_of(net, BATCHES[net])
    sides: tuple[list[float], list[float]] = [], []
    with bind(resolve(solver_source(net, BATCHES[net], "AUTO"))) as runtime:
        runtime.nets.train.operator.feed(fed(runtime.net.graph, data, label))
        runtime.settle()
        recorder = Recorder()
        for turn in range(2 * rounds):
            traces = turn % 4 in (1, 2)  # either side comes first as often as the other
            with runtime.events.into(recorder) if traces else nullcontext():
                for _ in range(iterations):
                    start = time.perf_counter()
                    runtime.iterate()
                    sides[traces].append(time.perf_counter() - start)
        recorder.close()
    return sides
