"""Every combination of exchange, balance, stages and shards, and inner layer: what works, and why the rest does not.

LeNet trains on small images made here. What goes in step (ALLREDUCE, TREE, CGDP, RING), and LOCAL, is compared with one
process in double precision, as ``bpt check`` does it; what does not (SGWU, AGWU, ASGD) trains some passes to their end.

    works     the ranks and one process agree up to a relative difference of 1e-5, or training came to its end
    refused   bpt says that the text asks for what cannot be; the first line of what it says
    FAILED    anything else: the exit status is 1

Ranks are threads of one process here, as in the tests; with --mpirun each combination is a job of its own.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bpt.apps.check.comparison import compare
from bpt.base.errors import UserError
from bpt.config.plan.resolve import resolve
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.sources import read_solver
from bpt.config.proto.text import to_text
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.profile import Profile, RankSpeed, write_profile
from bpt.parallel.balance.rank_facts import facts
from bpt.parallel.balance.speed import Estimate
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.outer import train
from bpt.train.rules.combinations import BALANCES
from scripts.benches.harness.arguments import explain, some_of
from scripts.benches.harness.launch import JobError, run_worker
from scripts.benches.harness.nets import reading_net, solver_param, write_images
from tests.support.doubles.thread_ranks import run_ranks

HELP = "which combinations of exchange, balance, stages, shards and inner layer work, and why others do not"
IN_STEP, OUTER = ("ALLREDUCE", "TREE", "CGDP", "RING", "LOCAL"), ("SGWU", "AGWU", "ASGD")
LAYOUTS = {"plain": (1, 1), "stages": (2, 1), "shards": (1, 2), "stages x shards": (2, 2)}  # stages, shards
INNERS = ("LIBRARY", "TASK_DAG")
RESULTS = WORKS, REFUSED, FAILED = "works", "refused", "FAILED"
SAMPLES, BATCH, CHECKED, TRAINED = 23, 10, 3, 7  # of the data set, of a batch; iterations
RATE = 0.01
TOLERANCE = 1e-5
TIMEOUT = 120.0  # seconds of a combination


@dataclass(frozen=True)
class Combination:
    """What is tried; ``layout`` is one of LAYOUTS."""

    exchange: str
    balance: str
    layout: str
    inner: str

    @property
    def ranks(self) -> int:
        """Two replicas, or workers beside the server; of single ranks more, so that there are four ranks at least."""
        stages, shards = LAYOUTS[self.layout]
        served = self.exchange in OUTER
        replicas = 2 if stages * shards > 1 else 4 - served
        return replicas * stages * shards + served

    @property
    def fields(self) -> str:
        """Its ``parallel_param``."""
        stages, shards = LAYOUTS[self.layout]
        parts = [f"exchange: {self.exchange} balance: {self.balance}"]
        parts += ["balance_param { num_batches: 2 }"] * (self.balance == "IDPA")
        parts += [f"num_stages: {stages} pipeline_param {{ micro_batches: 2 }}"] * (stages > 1)
        parts += [f"num_shards: {shards}"] * (shards > 1)
        parts += ["cgdp_param { chunk_size: 1 }"] * (self.exchange == "CGDP")
        parts += ["local_param { steps: 2 }"] * (self.exchange == "LOCAL")
        parts += ["inner_param { engine: TASK_DAG num_threads: 2 }"] * (self.inner == "TASK_DAG")
        return f"parallel_param {{ {' '.join(parts)} }}"


@dataclass(frozen=True)
class Tried:
    """What became of a combination.

    Attributes:
        result: of RESULTS.
        why: the first line of the error; empty if it works.
    """

    combination: Combination
    result: str
    why: str
    seconds: float

    def __str__(self) -> str:
        each = self.combination
        cells = f"{each.exchange:<10}{each.balance:<9}{each.layout:<17}{each.inner:<10}{each.ranks:>5}"
        return f"{cells} {self.seconds:>6.1f}  {self.result}{': ' * bool(self.why)}{self.why}"


HEAD = f"{'exchange':<10}{'balance':<9}{'layout':<17}{'inner':<10}{'ranks':>5} {'s':>6}  result"


ALL = tuple(itertools.starmap(Combination, itertools.product(IN_STEP + OUTER, BALANCES, LAYOUTS, INNERS)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    for flag, known in (
        ("exchange", IN_STEP + OUTER), ("balance", BALANCES), ("layout", LAYOUTS), ("inner", INNERS),
    ):  # fmt: skip
        parser.add_argument(f"--{flag}", type=some_of(known, flag), help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--only", type=some_of(RESULTS, "result"), help="which lines to print (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="tried at the same time (default %(default)s)")
    parser.add_argument("--mpirun", action="store_true", help="ranks are processes of mpirun; takes many times as long")


def run(arguments: argparse.Namespace) -> None:
    wanted = [
        each
        for each in ALL
        if all(getattr(each, name) in (getattr(arguments, name) or [getattr(each, name)]) for name in asdict(each))
    ]
    counts: Counter[str] = Counter()
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        for tried in attempts(wanted, Path(folder), arguments.jobs, arguments.mpirun):
            counts[tried.result] += 1
            if tried.result in (arguments.only or RESULTS):
                print(tried, flush=True)
    print(f"{len(wanted)} combinations: " + ", ".join(f"{counts[result]} {result}" for result in RESULTS))
    if counts[FAILED]:
        sys.exit(1)


def attempts(wanted: Sequence[Combination], folder: Path, jobs: int, by_mpirun: bool) -> Iterator[Tried]:
    """What becomes of these, in their order, so many at a time; ``folder`` is as ``write_files`` leaves it."""
    pool: Executor
    if by_mpirun:
        pool = ThreadPoolExecutor(jobs)
    else:
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), quiet)
    with pool:
        yield from pool.map(partial(attempt_by_mpirun if by_mpirun else attempt, folder=folder), wanted)


def attempt(combination: Combination, folder: Path) -> Tried:
    """Try it with threads for ranks."""
    start = time.perf_counter()
    own = own_folder(combination, folder)
    try:
        result, why = run_ranks(combination.ranks, partial(outcome, combination, own), TIMEOUT)[0]
    except Exception as error:  # whatever it is, it is what this bench looks for
        result, why = FAILED, f"{type(error).__name__}: {first_line(error)}"
    return Tried(combination, result, why, time.perf_counter() - start)


def attempt_by_mpirun(combination: Combination, folder: Path) -> Tried:
    """Try it in a job of its own."""
    start = time.perf_counter()
    own = own_folder(combination, folder)
    asked = {"combination": asdict(combination), "folder": str(own)}
    try:
        result, why = run_worker("combinations", asked, own, combination.ranks, threads=1, timeout=TIMEOUT)
    except JobError as error:
        result, why = FAILED, first_line(error)
    return Tried(combination, result, why, time.perf_counter() - start)


def work(order: dict[str, Any], world: Communicator) -> tuple[str, str]:
    """A rank of ``attempt_by_mpirun``."""
    quiet()
    return outcome(Combination(**order["combination"]), Path(order["folder"]), world)


def quiet() -> None:
    """Let this process compute with one thread, and log nothing."""
    torch.set_num_threads(1)
    logging.disable()


def outcome(combination: Combination, folder: Path, world: Communicator) -> tuple[str, str]:
    """Whether it works, and if not, why; on rank 0. A collective call.

    Raises:
        Exception: not because of what the text says.
    """
    try:
        text = read_solver(folder.parent / "solver.prototxt", [combination.fields, f'snapshot_prefix: "{folder}/s"'])
        plan = resolve(text)
        if combination.balance == "STATIC":
            profile = write_speeds(plan, world, folder)
            plan = plan.with_parallel(balance_param=replace(plan.parallel_param.balance_param, profile=profile))
        if combination.exchange in OUTER:
            trained = train(plan, world, CPU)
            if trained.iterations < TRAINED:
                return FAILED, f"training ended after {trained.iterations} iterations of {TRAINED}"
        else:
            compared, _ = compare(plan, CPU, world, CHECKED)
            differ = [line.name for line in compared if not line.within(TOLERANCE)]
            if differ:
                return FAILED, f"the ranks and one process differ in {', '.join(differ)}"
    except UserError as error:
        origin = getattr(error, "origin", None)  # a place in a text that nobody sees
        return REFUSED, first_line(error).removeprefix(f"{origin}: ")
    return WORKS, ""


def first_line(error: object) -> str:
    return next(iter(str(error).splitlines()), "")


def own_folder(combination: Combination, folder: Path) -> Path:
    """A folder in ``folder`` for what one combination leaves."""
    own = folder / "_".join(asdict(combination).values()).replace(" ", "")
    own.mkdir()
    return own


def write_files(folder: Path) -> None:
    """LeNet's solver, and images for it."""
    net = reading_net("lenet", write_images(folder / "images", "lenet", SAMPLES), BATCH)
    param = solver_param(net, RATE, max_iter=TRAINED, engine="CONTIGUOUS")
    (folder / "solver.prototxt").write_text(to_text(param))


def write_speeds(plan: RunPlan, world: Communicator, folder: Path) -> str:
    """A profile by which ranks are as fast as 1 : 2 : 3 …, in a file; a collective call."""
    graph, path = build_graph_of(plan.train), folder / "speeds.json"
    now = facts(plan, graph, CPU, world)
    speeds = tuple(
        RankSpeed({size: Estimate(size / (rank + 1), 0.0, 3) for size in (1, 100)}, 1000) for rank in range(world.size)
    )
    if world.rank == 0:
        write_profile(Profile(now, speeds, 1, graph.name, ""), str(path))
    world.Barrier()
    return str(path)
