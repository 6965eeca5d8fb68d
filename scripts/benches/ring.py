"""RING against ALLREDUCE: the ring of bpt's messages against the library's collective, buffer by buffer, in turn."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.benches.ddp import as_root, mpirun

HELP = "exchange RING (bpt's ring of messages) against ALLREDUCE (the library's collective), by size of the buffer"
WORKER = Path(__file__).with_name("ring_worker.py")
SIZES = tuple(10**3 * 4**power for power in range(9))  # bytes: 1 kB … 65.5 MB


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, separated by commas (default %(default)s)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of a buffer (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side (default %(default)s)")
    parser.add_argument("--turn", type=float, default=0.1, help="seconds of a turn, about (default %(default)s)")


def measured(ranks: int, sizes: Sequence[int], rounds: int, turn: float) -> list[dict[str, list[float]]]:
    """For each size, seconds of one sum in each turn, by exchange."""
    words = [str(WORKER), ",".join(map(str, sizes)), str(rounds), str(turn)]
    done = subprocess.run(
        [*mpirun(ranks), sys.executable, *words],
        env=os.environ | as_root() | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{ranks} ranks ended with status {done.returncode}; see above")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def run(arguments: argparse.Namespace) -> None:
    sizes = [int(size) for size in arguments.sizes.split(",")]
    print(f"{os.cpu_count()} cores; medians of {arguments.rounds} turns; below 1, RING is faster")
    print(f"{'ranks':>5} {'kB':>10} {'ALLREDUCE ms':>13} {'RING ms':>10} {'ratio':>6}  quartiles of the ratio")
    for ranks in map(int, arguments.ranks.split(",")):
        for size, seconds in zip(sizes, measured(ranks, sizes, arguments.rounds, arguments.turn), strict=True):
            print(row(ranks, size, seconds["ALLREDUCE"], seconds["RING"]), flush=True)


def row(ranks: int, size: int, library: Sequence[float], ring: Sequence[float]) -> str:
    """A line of the table. Turns that followed each other make a ratio."""
    ratios = [ours / theirs for ours, theirs in zip(ring, library, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    one, other = statistics.median(library), statistics.median(ring)
    return (
        f"{ranks:>5} {size / 1e3:>10.0f} {one * 1e3:>13.3f} {other * 1e3:>10.3f} {statistics.median(ratios):>6.2f}"
        f"  {low:.2f} - {high:.2f}"
    )
