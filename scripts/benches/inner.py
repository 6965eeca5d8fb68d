"""The inner layer: TASK_DAG with N threads against LIBRARY with N threads, in alternation, each in its own process."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.benches.inner_nets import BATCHES, CASES, LIBRARY, TASK_DAG, Trainer

HELP = "TASK_DAG (bpt's tasks) against LIBRARY (torch's threads) within one process"
WORKER = Path(__file__).with_name("inner_worker.py")
WARM_UP = 12  # iterations; they cover the choice of the layout
TURN = 0.4  # seconds that a turn should take at least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nets", default=",".join((*CASES, "googlenet")), help="which (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of either side (default %(default)s)")
    parser.add_argument("--batch", type=int, default=0, help="samples; 0: as usual for the network")
    parser.add_argument("--engine", default="AUTO", help="layout: AUTO, CONTIGUOUS or CHANNELS_LAST")
    parser.add_argument("--check", action="store_true", help="also compare the gradients of one pass")


class Side:
    """Training under one inner engine, in a process of its own that goes on when asked."""

    def __init__(self, name: str, kind: str, threads: int, batch: int, engine: str) -> None:
        words = [name, kind, str(threads), str(batch), engine]
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.seconds: list[float] = []
        self.last: dict[str, Any] = {}

    def train(self, iterations: int, count: bool = True) -> None:
        assert self._process.stdin and self._process.stdout
        print(iterations, file=self._process.stdin, flush=True)
        self.last = json.loads(self._process.stdout.readline())
        if count:
            self.seconds += self.last["seconds"]

    def close(self) -> None:
        self._process.communicate()

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def run(arguments: argparse.Namespace) -> None:
    print(
        f"{'net':<14} {'batch':>5} {'LIBRARY ms':>11} {'TASK_DAG ms':>12} {'ratio':>6} {'memory':>7}  "
        "layouts; threads, last pass"
    )
    for name in arguments.nets.split(","):
        batch = arguments.batch or BATCHES[name]
        sides = [Side(name, kind, arguments.threads, batch, arguments.engine) for kind in (LIBRARY, TASK_DAG)]
        for side in sides:
            side.train(WARM_UP, count=False)
        iterations = max(1, round(TURN / statistics.median(sides[0].last["seconds"])))
        for turn in range(arguments.rounds):
            for side in sides if turn % 2 == 0 else sides[::-1]:
                side.train(iterations)
        for side in sides:
            side.close()
        library, dag = sides
        print(
            f"{name:<14} {batch:>5} {library.median * 1e3:>11.2f} {dag.median * 1e3:>12.2f} "
            f"{dag.median / library.median:>6.3f} {dag.last['peak_mib'] / library.last['peak_mib']:>7.3f}  "
            f"{library.last['layout']}, {dag.last['layout']}; "
            f"{'; '.join(map(described, dag.last['passes']))}",
            flush=True,
        )
        if arguments.check:
            print(f"{'':<14} largest difference of a gradient: {difference(name, arguments.threads, batch):.2g}")


def described(passed: dict[str, float]) -> str:
    """What the threads did in a pass, in a few words."""
    share = passed["critical_path"] / passed["seconds"]
    return (
        f"{passed['tasks']:.0f} tasks, critical path {share:.0%}, balance {passed['balance']:.2f}, "
        f"waiting {passed['waiting'] * 1e3:.1f} ms"
    )


def difference(name: str, threads: int, batch: int) -> float:
    """Of one pass under both engines, with the same weights: the largest difference of the loss or of an element of a
    gradient, relative to the tensor's largest."""
    library, dag = (Trainer(name, kind, threads, batch, "CONTIGUOUS").gradients() for kind in (LIBRARY, TASK_DAG))
    return max(
        float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-6))
        for ours, theirs in zip(dag, library, strict=True)
    )
