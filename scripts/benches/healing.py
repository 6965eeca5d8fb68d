"""What a lost rank costs a run that heals, and what it costs to be ready for that.

Losses: a rank is killed (SIGKILL) in the middle of the run, and those that are left go on.

  detect   from the kill until the last of them knows that a rank is lost
  find     until they have found each other
  rebuild  until the plan is bound to the state again
  repeat   until the iteration that broke off is done again; the first one of a new net takes longer than others

Steady: a run with fault_param { on_loss: HEAL } against one with STOP, and with copies: 1, without a loss: the same
run does its iterations in one way or another, in turn.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from bpt.base.errors import LostRankError
from bpt.config.plan.resolve import read_plan
from bpt.config.proto.text import to_text
from bpt.engine.instructions import Instruction
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.binding import bind
from bpt.train.runtime.healing import hosts_of, run_with_recovery
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions
from scripts.benches.harness.arguments import at_least, explain, some_of
from scripts.benches.harness.launch import JobError, run_worker
from scripts.benches.harness.nets import reading_net, solver_param, write_images
from scripts.benches.harness.turns import in_turn, ratio

HELP = "seconds to go on after a rank is lost, by exchange; and what being ready for that costs"
EXCHANGES = {"ALLREDUCE": "", "TREE": "", "RING": "", "CGDP": "cgdp_param { chunk_size: 1 }"}
BATCHES = {"lenet": 64, "cifar10_quick": 100, "alexnet": 8, "resnet20": 32}
GOAL = "goal: 2 s together; HEAL 1.02 times STOP"
ULFM = ("--with-ft", "ulfm")
VICTIM = 1  # rank 0 writes the answer
BEFORE, AFTER = 3, 2  # iterations before the one that breaks off, and after it
STOP, HEAL, COPIES = "STOP", "HEAL", "HEAL, copies: 1"
WAYS = (STOP, HEAL, COPIES)
PHASES = ("detect", "find", "rebuild", "repeat")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--net", choices=BATCHES, default="alexnet", help="(default %(default)s)")
    parser.add_argument("--batch", type=at_least(1), help=f"of all ranks (default {BATCHES})")
    parser.add_argument("--solver", default="", metavar="FILE", help="train by this one instead of --net")
    parser.add_argument("--ranks", type=at_least(2), default=4, help="(default %(default)s)")
    known = some_of(EXCHANGES, "exchange")
    parser.add_argument("--exchanges", type=known, default=",".join(EXCHANGES), help="(default %(default)s)")
    parser.add_argument("--losses", type=int, default=3, help="jobs with a loss, by exchange (default %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=12, help="turns of each side; 0: no steady cost (default %(default)s)"
    )
    parser.add_argument("--iterations", type=at_least(1), default=4, help="of a turn (default %(default)s)")
    parser.add_argument("--threads", type=at_least(1), default=1, help="of each rank (default %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        solver = arguments.solver or str(_solver(folder, arguments.net, arguments.batch or BATCHES[arguments.net]))
        what = arguments.solver or f"{arguments.net}, batch {arguments.batch or BATCHES[arguments.net]}"
        print(f"{what}, {arguments.ranks} ranks of {arguments.threads} threads on {os.cpu_count()} cores; {GOAL}")
        try:
            if arguments.losses:
                print(f"seconds after a loss, medians of {arguments.losses}, and from the best to the worst together")
                print(*loss_rows(arguments, solver, folder), sep="\n", flush=True)
            if arguments.rounds:
                print(f"iterations without a loss; ratios to {STOP} of {arguments.rounds} turns, and their quartiles")
                print(*steady_rows(arguments, solver, folder), sep="\n", flush=True)
        except JobError as error:
            sys.exit(f"error: {error}")


def _solver(folder: Path, net: str, batch: int) -> Path:
    """The text of a solver of ``net`` with images of its own."""
    images = write_images(folder / "images", net, 4 * batch)
    path = folder / "solver.prototxt"
    path.write_text(to_text(solver_param(reading_net(net, images, batch), 0.001, snapshot_prefix=str(folder / net))))
    return path


def loss_rows(arguments: argparse.Namespace, solver: str, folder: Path) -> Iterator[str]:
    """The table of losses."""
    yield (
        f"{'exchange':<12}" + "".join(f"{phase:>9}" for phase in (*PHASES, "together")) + "  from - to        iteration"
    )
    for exchange in arguments.exchanges:
        order = {"what": "loss", "solver": solver, "overrides": [_exchange(exchange)], "folder": str(folder)}
        runs = [_job(order, arguments, folder) for _ in range(arguments.losses)]
        yield loss_row(exchange, runs)


def loss_row(exchange: str, runs: Sequence[dict[str, float]]) -> str:
    """A line of it: medians of the phases, which add up in each run but not here."""
    together = [sum(run[phase] for phase in PHASES) for run in runs]
    cells = [median(run[phase] for run in runs) for phase in PHASES]
    numbers = "".join(f"{seconds:>9.3f}" for seconds in (*cells, median(together)))
    iteration = median(run["iteration"] for run in runs)
    return f"{exchange:<12}{numbers}  {min(together):.3f} - {max(together):.3f}  {iteration:>11.3f}"


def steady_rows(arguments: argparse.Namespace, solver: str, folder: Path) -> Iterator[str]:
    """The table of the steady cost."""
    yield f"{'exchange':<12} {'':<16} {'ms':>9}  ratio  quartiles"
    for exchange in arguments.exchanges:
        overrides = [_exchange(exchange), "parallel_param { fault_param { copies: 1 } }"]
        order = {"what": "steady", "solver": solver, "overrides": overrides}
        turns = _job(order | {"rounds": arguments.rounds, "iterations": arguments.iterations}, arguments, folder)
        for way in WAYS:
            compared = "" if way == STOP else ratio(turns[way], turns[STOP])
            yield f"{exchange:<12} {way:<16} {median(turns[way]) * 1e3:>9.2f} {compared}"


def _exchange(name: str) -> str:
    return f"parallel_param {{ exchange: {name} {EXCHANGES[name]} }}"


def _job(order: dict[str, Any], arguments: argparse.Namespace, folder: Path) -> Any:
    return run_worker("healing", order, folder, arguments.ranks, arguments.threads, timeout=1800, options=ULFM)


def work(order: dict[str, Any], world: Communicator) -> Any:
    """A rank of a job."""
    does = _lose if order["what"] == "loss" else _go_in_turn
    return does(order, world)


def _lose(order: dict[str, Any], world: Communicator) -> dict[str, float]:
    """Lose a rank; the seconds of each phase, of the slowest rank that is left."""
    plan = read_plan(order["solver"], order["overrides"]).measured()
    died = Path(order["folder"]) / "died"
    world = world.Dup()
    healed = _Healed()
    logging.getLogger("bpt").addHandler(healed)
    logging.getLogger("bpt").setLevel(logging.INFO)
    times: list[float] = []  # the end of each iteration
    noticed: list[float] = []

    def die(iteration: int, instruction: Instruction) -> None:
        if (iteration, instruction.letter) == (BEFORE, "X"):
            died.write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)

    def train(runtime: Runtime) -> None:
        if runtime.world.world_ranks[runtime.world.rank] == VICTIM:
            runtime.passes.executor.before = die
        try:
            while runtime.iteration < BEFORE + 1 + AFTER:
                runtime.iterate()
                times.append(time.monotonic())
        except LostRankError:
            noticed.append(time.monotonic())
            raise

    start = bind(plan, None, world)
    with run_with_recovery(start, hosts_of(world), TrainOptions(CPU), train) as runtime:
        detect = noticed[0] - float(died.read_text())
        find, rebuild = healed.seconds
        repeat = times[BEFORE] - noticed[0] - find - rebuild
        iteration = mean(later - sooner for sooner, later in pairwise(times[:BEFORE]))
        found = dict(zip((*PHASES, "iteration"), (detect, find, rebuild, repeat, iteration), strict=True))
        everybody = runtime.group.world.allgather(found)
    return {phase: max(each[phase] for each in everybody) for phase in found}


class _Healed(logging.Handler):
    """Keeps the seconds that the log tells."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seconds = 0.0, 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if record.msg.startswith("Healed") and record.args:
            find, rebuild = record.args
            self.seconds = float(find), float(rebuild)  # type: ignore[arg-type]


def _go_in_turn(order: dict[str, Any], world: Communicator) -> dict[str, list[float]]:
    """Seconds of an iteration in each turn, by way."""
    plan = read_plan(order["solver"], order["overrides"]).measured()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    with bind(plan, None, world.Dup()) as runtime:
        runtime.settle()
        recovery, copies = runtime.recovery, runtime.recovery.copies
        assert runtime.heals and copies, "this takes mpirun --with-ft ulfm"
        for way in in_turn(WAYS, order["rounds"]):
            recovery.on, recovery.copies = way != STOP, copies if way == COPIES else None
            runtime.iterate()  # what was changed is not what is measured
            world.Barrier()
            start = time.perf_counter()
            runtime.run(order["iterations"])
            world.Barrier()
            seconds[way].append((time.perf_counter() - start) / order["iterations"])
        recovery.on, recovery.copies = True, copies
    return seconds
