"""bpt on several ranks against PyTorch's DistributedDataParallel (gloo): same net, same batch, in alternation."""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HELP = "bpt under mpirun against PyTorch's DistributedDataParallel over gloo"
WORKER = Path(__file__).with_name("ddp_worker.py")
BATCHES = {"lenet": 64, "cifar10_quick": 100, "alexnet": 16}
ITERATIONS = {"lenet": 40, "cifar10_quick": 8, "alexnet": 2}  # a turn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nets", default=",".join(BATCHES), help="which, separated by commas (default: all)")
    parser.add_argument("--ranks", type=int, default=2, help="processes of each side (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of each (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each side (default %(default)s)")
    parser.add_argument("--exchange", default="ALLREDUCE", help="bpt's exchange (default %(default)s)")


def mpirun(ranks: int) -> list[str]:
    """The launcher beside this Python, or else on the PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    return [str(beside) if beside.exists() else "mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]


def as_root() -> dict[str, str]:
    """What Open MPI wants to hear before it runs as root."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return dict.fromkeys(names, "1") if os.geteuid() == 0 else {}


class Side:
    """The processes of one side. They sleep on a pipe each until they are told to train, so that nobody polls."""

    def __init__(self, kind: str, net: str, arguments: argparse.Namespace, folder: Path) -> None:
        self._pipes = [folder / f"{kind}{rank}" for rank in range(arguments.ranks)]
        for pipe in self._pipes:
            os.mkfifo(pipe)
        words = [str(WORKER), kind, net, str(BATCHES[net]), str(arguments.threads), str(folder), arguments.exchange]
        environment = os.environ | as_root() | {"OMP_NUM_THREADS": str(arguments.threads)}
        if kind == "bpt":
            commands = [([*mpirun(arguments.ranks), sys.executable, *words], environment)]
        else:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = str(probe.getsockname()[1])
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(arguments.ranks)}
            commands = [
                ([sys.executable, *words], environment | meeting | {"RANK": str(rank)})
                for rank in range(arguments.ranks)
            ]
        self._processes = [
            subprocess.Popen(words, env=env, stdout=subprocess.PIPE if number == 0 else None, text=True)
            for number, (words, env) in enumerate(commands)
        ]
        self._orders = [pipe.open("w") for pipe in self._pipes]
        self.seconds: list[float] = []
        self.layout = ""

    def train(self, iterations: int, count: bool = True) -> None:
        for orders in self._orders:
            print(iterations, file=orders, flush=True)
        answers = self._processes[0].stdout
        assert answers
        line = answers.readline()
        if not line:
            sys.exit("a side has ended; see above")
        answer = json.loads(line)
        self.layout = answer["layout"]
        if count:
            self.seconds += answer["seconds"]

    def close(self) -> None:
        for orders in self._orders:
            orders.close()
        for process in self._processes:
            process.wait()

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def run(arguments: argparse.Namespace) -> None:
    print(f"{arguments.ranks} processes, {arguments.threads} thread(s) each; medians of rank 0")
    print(f"{'net':<14} {'batch':>5} {'DDP ms':>10} {'bpt ms':>10} {'ratio':>6}  layout chosen")
    for net in arguments.nets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            ddp, ours = (Side(kind, net, arguments, Path(folder)) for kind in ("ddp", "bpt"))
            # Warm-up covers the iterations in which bpt chooses its layout.
            for side in (ddp, ours):
                side.train(24 if ITERATIONS[net] > 2 else 14, count=False)
            for turn in range(arguments.rounds):
                for side in (ddp, ours) if turn % 2 == 0 else (ours, ddp):
                    side.train(ITERATIONS[net])
            for side in (ddp, ours):
                side.close()
            ratio = ours.median / ddp.median
            print(
                f"{net:<14} {BATCHES[net]:>5} {ddp.median * 1e3:>10.2f} {ours.median * 1e3:>10.2f} {ratio:>6.3f}"
                f"  {ours.layout}",
                flush=True,
            )
