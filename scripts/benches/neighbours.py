"""Trainings beside others on the same cores: what each takes there, by what it takes alone.

bpt        as bpt train waits for its threads (bpt/system/comm/openmp_waiting.py)
defaults   the same, but threads wait as OpenMP's library does by itself
plain      the eager PyTorch loop

Goals: of two bpt at once each takes at most 2.2 times what one takes alone; and beside a plain loop with as many
threads bpt takes no longer than a plain loop with one thread takes there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from statistics import median

import torch

from bpt.system.comm.neighbours import CpuTime
from bpt.system.comm.openmp_waiting import CALM, INTERVAL, spin_while_cores_are_free
from scripts.benches.harness.arguments import at_least, explain
from scripts.benches.harness.sides import batch_of, bpt_side, plain_side, solver_source
from scripts.benches.harness.turns import Side, serve_turns

HELP = "two trainings at once, by one alone; and beside a plain PyTorch loop"
BATCHES = {"lenet": 64, "cifar10_quick": 100, "alexnet": 16}
ITERATIONS = {"lenet": 40, "cifar10_quick": 8, "alexnet": 2}  # a turn
GOAL = 2.2
SETTLED = (CALM + 2) * INTERVAL  # seconds alone after which threads spin again
KINDS = ("bpt", "defaults", "plain")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--nets", default="lenet", help="which, separated by commas (default %(default)s)")
    parser.add_argument("--threads", type=at_least(1), default=2, help="of each training (default %(default)s)")
    parser.add_argument(
        "--rounds", type=at_least(1), default=8, help="turns alone, and then at once (default %(default)s)"
    )


def run(arguments: argparse.Namespace) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):  # or "defaults" would not be what they are
        os.environ.pop(name, None)
    print(f"{arguments.threads} threads each, on {os.cpu_count()} CPUs; medians of iterations")
    for net in arguments.nets.split(","):
        print(f"{net + ', twice':<28} {'alone ms':>10} {'at once ms':>10} {'ratio':>6}")
        for kind in KINDS:
            alone, both = twice(kind, net, arguments.threads, arguments.rounds)
            goal = f"  goal: at most {GOAL:g}, {verdict(both / alone <= GOAL)}" if kind == "bpt" else ""
            print(f"{kind:<28} {alone * 1e3:>10.2f} {both * 1e3:>10.2f} {both / alone:>6.2f}{goal}", flush=True)
        print(f"{net + ', beside a plain loop':<28} {'ms':>10}")
        threads = {"bpt": arguments.threads, "defaults": arguments.threads, "plain": 1}
        seen = {kind: beside_plain(kind, net, own, arguments) for kind, own in threads.items()}
        for kind, seconds in seen.items():
            goal = f"  goal: at most plain's, {verdict(seconds <= seen['plain'])}" if kind == "bpt" else ""
            print(f"{f'{kind}, {threads[kind]} threads':<28} {seconds * 1e3:>10.2f}{goal}", flush=True)


def verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def twice(kind: str, net: str, threads: int, rounds: int) -> tuple[float, float]:
    """The median seconds of an iteration alone, and of each of two at once."""
    first, second = (side_of(kind, net, threads) for _ in range(2))
    alone, together = [], []
    end = time.monotonic() + SETTLED
    while time.monotonic() < end:
        first.train(ITERATIONS[net], count=False)
    for _ in range(rounds):
        first.train(ITERATIONS[net])
        alone += first.last["seconds"]
    for _ in range(rounds):
        at_once((first, second), ITERATIONS[net])
        together += [*first.last["seconds"], *second.last["seconds"]]
    for side in (first, second):
        side.close()
    return median(alone), median(together)


def beside_plain(kind: str, net: str, threads: int, arguments: argparse.Namespace) -> float:
    """The median seconds of an iteration while a plain loop with ``--threads`` threads trains, too."""
    side, other = side_of(kind, net, threads), side_of("plain", net, arguments.threads)
    for _ in range(arguments.rounds):
        at_once((side, other), ITERATIONS[net])
    found = side.median
    for one in (side, other):
        one.close()
    return found


def side_of(kind: str, net: str, threads: int) -> Side:
    """A side that has settled its layout."""
    side = Side.alone("neighbours", kind, net, BATCHES[net], threads)
    side.train(24, count=False)
    return side


def at_once(sides: Sequence[Side], iterations: int) -> None:
    """Let them take a turn side by side."""
    with ThreadPoolExecutor(len(sides)) as pool:
        list(pool.map(lambda side: side.train(iterations), sides))


def serve(kind: str, net: str, batch: str, threads: str) -> None:
    """A side's process."""
    torch.set_num_threads(int(threads))
    data, label = batch_of(net, int(batch))
    source = solver_source(net, int(batch), "AUTO")
    step, layout = plain_side(source, data, label) if kind == "plain" else bpt_side(source, data, label)
    chosen = spin_while_cores_are_free(CpuTime.now(), torch.get_num_threads) if kind == "bpt" else nullcontext()
    with chosen:
        serve_turns(sys.stdin, step, lambda: {"layout": layout()})
