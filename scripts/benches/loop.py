"""bpt against a plain PyTorch training loop: same net, same batch, in alternation, each in its own process."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HELP = "bpt against a plain PyTorch training loop (eager, torch.optim.SGD)"
WORKER = Path(__file__).with_name("worker.py")
BATCHES = {"lenet": 64, "cifar10_quick": 100, "alexnet": 16, "googlenet": 8, "resnet20": 64}
ITERATIONS = {"lenet": 40, "cifar10_quick": 8, "alexnet": 2, "googlenet": 2, "resnet20": 6}  # a turn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nets", default=",".join(BATCHES), help="which, separated by commas (default: all)")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each side (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default %(default)s)")
    parser.add_argument("--engine", default="AUTO", help="bpt's engine: AUTO, CONTIGUOUS or CHANNELS_LAST")


class Side:
    """One of the two loops, in a process of its own that trains when asked."""

    def __init__(self, kind: str, net: str, arguments: argparse.Namespace) -> None:
        words = [kind, net, str(BATCHES[net]), str(arguments.threads), arguments.engine]
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.seconds: list[float] = []
        self.peak_mib = 0.0
        self.layout = ""

    def train(self, iterations: int, count: bool = True) -> None:
        assert self._process.stdin and self._process.stdout
        print(iterations, file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        self.peak_mib, self.layout = answer["peak_mib"], answer["layout"]
        if count:
            self.seconds += answer["seconds"]

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def run(arguments: argparse.Namespace) -> None:
    print(f"{'net':<14} {'batch':>5} {'plain ms':>10} {'bpt ms':>10} {'ratio':>6} {'memory':>7}  layout chosen")
    for net in arguments.nets.split(","):
        plain, ours = Side("plain", net, arguments), Side("bpt", net, arguments)
        # Warm-up covers the iterations in which bpt chooses its layout.
        for side in (plain, ours):
            side.train(24 if ITERATIONS[net] > 2 else 14, count=False)
        for turn in range(arguments.rounds):
            for side in (plain, ours) if turn % 2 == 0 else (ours, plain):
                side.train(ITERATIONS[net])
        plain.close()
        ours.close()
        print(
            f"{net:<14} {BATCHES[net]:>5} {plain.median * 1e3:>10.2f} {ours.median * 1e3:>10.2f} "
            f"{ours.median / plain.median:>6.3f} {ours.peak_mib / plain.peak_mib:>7.3f}  {ours.layout}",
            flush=True,
        )
