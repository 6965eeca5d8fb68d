"""One job of many ranks on this machine: what grows with their number, and how.

start      seconds from mpirun to the end of the first iteration, of which imports of PyTorch take most
CPU s      of a rank until then
private    MB of memory of a rank that no other process uses
ms, CPU ms of an iteration of LeNet, whose batch of 64 is divided over the ranks; a rank's CPU time
messages   that a rank sends in an iteration; the library's collectives count as one
kB         in these
most       messages of the rank that sends most, from the start to the first iteration
files      that a rank has open

Ranks on the same cores take turns. So compare CPU times, messages and memory, which do not depend on that.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from bpt.config.plan.resolve import read_plan
from bpt.config.proto.text import to_text
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from scripts.benches.harness.arguments import at_least, explain
from scripts.benches.harness.launch import JobError, run_worker
from scripts.benches.harness.nets import reading_net, solver_param, write_images

HELP = "one job of many ranks on this machine: start, memory, messages and CPU time by the number of ranks"
BATCH = 64
WARM_UP = 3
TIMEOUT = 600.0
HEAD = ("ranks", "start s", "CPU s", "private MB", "     ms", "CPU ms", "messages", "   kB", "most", "files")


@dataclass
class Sent:
    """What a rank has sent.

    Attributes:
        messages: point-to-point ones, and calls of the library's collectives.
        nbytes: of both.
    """

    messages: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class Costs:
    """What a rank has cost; of an iteration the median, or the mean of counts."""

    start: float
    start_cpu: float
    start_messages: int
    private: float  # MB
    iteration: float
    cpu: float
    messages: float
    nbytes: float
    files: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--ranks", default="4,16,32", help="numbers of ranks, by commas (default %(default)s)")
    parser.add_argument("--iterations", type=at_least(1), default=10, help="that count (default %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    print(f"LeNet, batch {BATCH}, on {os.cpu_count()} CPUs; means over the ranks")
    print(line_of(HEAD), flush=True)
    with tempfile.TemporaryDirectory() as name:
        solver = write_solver(Path(name))
        for ranks in [at_least(2)(text) for text in arguments.ranks.split(",")]:
            order = {"solver": str(solver), "iterations": arguments.iterations, "begun": time.monotonic()}
            try:
                seen = run_worker("scale", order, solver.parent, ranks, threads=1, timeout=TIMEOUT)
            except JobError as error:
                sys.exit(f"error: {ranks} ranks: {error}")
            print(line_of(row(ranks, [Costs(**each) for each in seen])), flush=True)


def line_of(cells: Sequence[str]) -> str:
    """A line of the table."""
    return " ".join(cell.rjust(len(head) + 1) for cell, head in zip(cells, HEAD, strict=True))


def write_solver(folder: Path) -> Path:
    """The text of a run of LeNet, with images of its own."""
    images = write_images(folder / "images", "lenet", 4 * BATCH)
    net = reading_net("lenet", images, BATCH)
    path = folder / "solver.prototxt"
    path.write_text(to_text(solver_param(net, 0.01, engine="CONTIGUOUS", snapshot_prefix=str(folder / "lenet"))))
    return path


def row(ranks: int, costs: Sequence[Costs]) -> tuple[str, ...]:
    """The cells of a line of the table."""

    def of_all(cost: Callable[[Costs], float]) -> float:
        return mean(map(cost, costs))

    return (
        str(ranks),
        f"{of_all(lambda each: each.start):.1f}",
        f"{of_all(lambda each: each.start_cpu):.2f}",
        f"{of_all(lambda each: each.private):.0f}",
        f"{of_all(lambda each: each.iteration) * 1e3:.1f}",
        f"{of_all(lambda each: each.cpu) * 1e3:.1f}",
        f"{of_all(lambda each: each.messages):.1f}",
        f"{of_all(lambda each: each.nbytes) / 1e3:.0f}",
        str(max(each.start_messages for each in costs)),
        f"{of_all(lambda each: each.files):.0f}",
    )


def work(order: dict[str, Any], world: Communicator) -> list[dict[str, float]]:
    """A rank: trains; what each has cost."""
    sent = count_sent(type(world))
    with Solver(read_plan(order["solver"], []), world=world) as solver:
        solver.step(1)
        start, cpu, messages = time.monotonic() - order["begun"], time.process_time(), sent.messages
        solver.step(WARM_UP)
        before, seconds = Sent(sent.messages, sent.nbytes), []
        for _ in range(order["iterations"]):
            begun = time.perf_counter(), time.process_time()
            solver.step(1)
            seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
        count = order["iterations"]
        wall, own = map(median, zip(*seconds, strict=True))
        found = Costs(
            start, cpu, messages, private_bytes() / 1e6, wall, own,
            (sent.messages - before.messages) / count, (sent.nbytes - before.nbytes) / count,
            len(os.listdir("/proc/self/fd")),
        )  # fmt: skip
        everybody: list[dict[str, float]] = world.allgather(asdict(found))
        return everybody


def count_sent(kind: type) -> Sent:
    """Count what communicators of a class send from now on, but not the heartbeat's messages, which come by time."""
    found = Sent()

    def counted(call: Callable[..., Any], nbytes: Callable[..., int]) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            if threading.current_thread().name != "heartbeat":
                found.messages += 1
                found.nbytes += nbytes(*arguments)
            return call(*arguments)

        return counting

    kind._Isend = counted(kind._Isend, lambda comm, buffer, *others: buffer.nbytes)  # type: ignore[attr-defined]
    kind._do = counted(kind._do, lambda comm, method, *arguments: _bytes_of(arguments))  # type: ignore[attr-defined]
    return found


def _bytes_of(arguments: Sequence[Any]) -> int:
    """The bytes of the first buffer of a call of MPI."""
    specs = [argument for argument in arguments if isinstance(argument, list)]
    return next((spec[0].nbytes for spec in specs if isinstance(spec[0], np.ndarray)), 0)


def private_bytes() -> int:
    """The memory of this process that no other one uses."""
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()]
    return 1024 * sum(int(words[1]) for words in lines if words[0] in ("Private_Clean:", "Private_Dirty:"))
