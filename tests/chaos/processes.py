"""Ranks that are processes, killed by SIGKILL at random moments: the others heal, with the curve of one process."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import IO, NamedTuple

from tests.support.mpirun import in_session, started
from tests.support.spread_runs import Saved, remove_snapshots, set_up, train

Run = tuple[int, str, Callable[[], int]]

ITERATIONS = 60
RANKS = 3
LONGEST = 1.0  # seconds from the first loss to a kill, at most; a run takes about as long
TIMEOUT = 120.0
ALWAYS = f"precision: FLOAT64 max_iter: {ITERATIONS} snapshot: 5 display: 1"
MEANWHILE = "test_interval: 3"  # collectives of all kinds between two iterations
LARS = "local_lr_auto: true local_gw_ratio: 0.05"


class Variant(NamedTuple):
    """What the solver says, and how many ranks may be lost.

    Attributes:
        solver: what changes the curve.
        parallel: what must not change it.
    """

    solver: str = ""
    parallel: str = ""
    losses: int = 2


COPIES = "fault_param { copies: 1 }"
VARIANTS = {
    "ALLREDUCE": Variant(),
    "RING": Variant(parallel="exchange: RING"),
    "TREE": Variant(parallel=f"exchange: TREE {COPIES}", losses=1),
    "CGDP": Variant(parallel="exchange: CGDP cgdp_param { chunk_size: 1 }"),
    "LARS": Variant(LARS),
    "LARS, CGDP": Variant(LARS, "exchange: CGDP"),
    "between": Variant(MEANWHILE),
    "best test": Variant(f'{MEANWHILE} snapshot_best: "accuracy"'),
    "min_ranks": Variant(parallel="fault_param { min_ranks: 2 }", losses=1),
    "spares": Variant(MEANWHILE, "fault_param { spares: 1 }", losses=1),  # of two that train at once none has the state
}


def campaign(seed: int, first: int, runs: int) -> Iterator[Run]:
    """Runs of three processes of which one or two are killed; all variants in turn, in the current folder."""
    set_up(Path.cwd())
    names = list(VARIANTS)
    for number in range(first, first + (runs or 100)):
        name = names[number % len(names)]
        choice = random.Random(f"{seed} {number}")
        moments = sorted(choice.uniform(0, LONGEST) ** 2 / LONGEST for _ in range(VARIANTS[name].losses))
        if len(moments) == 2 and choice.random() < 0.25:
            moments[1] = moments[0]
        who = choice.sample(range(RANKS), len(moments))
        told = ", ".join(f"rank {rank} after {moment:.3f} s" for rank, moment in zip(who, moments, strict=True))
        yield number, f"{name}: {told}", partial(check, VARIANTS[name], who, moments)


@cache
def undisturbed(folder: Path, solver: str) -> tuple[Saved, dict[int, tuple[float, ...]]]:
    """Return the last snapshot of one process in ``folder``, the current one, and the losses by iteration."""
    run = train(1, ALWAYS, solver)
    saved = Saved.read(ITERATIONS)
    remove_snapshots()
    return saved, losses_of("\n".join(run.log))


def losses_of(log: str) -> dict[int, tuple[float, ...]]:
    """Return what the lines "Iteration N (…), loss = X" say; an iteration that came again has several."""
    found: dict[int, tuple[float, ...]] = {}
    for iteration, loss in re.findall(r"Iteration (\d+)(?: \([^)]*\))?, loss = ([-\d.e+]+|nan|inf)", log):
        found[int(iteration)] = (*found.get(int(iteration), ()), float(loss))
    return found


def check(variant: Variant, who: list[int], moments: list[float]) -> int:
    """Train on three ranks, kill some, and compare with one process; return how many were still alive to be killed."""
    saved, curve = undisturbed(Path.cwd(), variant.solver)
    words = ["train", "--solver=solver.prototxt", f"--set={ALWAYS} {variant.solver}"]
    words += [f"--set=parallel_param {{ {variant.parallel} }}"] if variant.parallel else []
    begin = f"import os; os.chdir({os.getcwd()!r}); "
    begin += "open('rank_' + os.environ['OMPI_COMM_WORLD_RANK'], 'w').write(str(os.getpid())); "
    argv = [sys.executable, "-c", f"{begin}from bpt.cli.main import main; raise SystemExit(main())", *words]
    killed = 0
    with tempfile.TemporaryFile("w+") as log, started(RANKS, argv, options=("--with-ft", "ulfm")) as process:
        assert process.stdout is not None and process.stderr is not None
        begun = threading.Event()
        reader = threading.Thread(target=_read, args=(process.stderr, log, begun), daemon=True)
        threading.Thread(target=process.stdout.read, daemon=True).start()
        reader.start()
        begun.wait(TIMEOUT)
        start = time.monotonic()
        for rank, moment in zip(who, moments, strict=True):
            time.sleep(max(0.0, start + moment - time.monotonic()))
            pid = int(Path(f"rank_{rank}").read_text())
            if pid in in_session(process.pid):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        process.wait(TIMEOUT)
        reader.join(TIMEOUT)
        log.seek(0)
        text = log.read()
    assert process.returncode == 0, f"status {process.returncode}\n{text[-4000:]}"
    Saved.read(ITERATIONS).check(saved, 1e-5)
    for iteration, losses in losses_of(text).items():
        for loss in losses:
            assert abs(loss - curve[iteration][0]) <= 1e-4 * abs(curve[iteration][0]), (iteration, losses)
    remove_snapshots()
    return killed


def _read(stream: IO[str], log: IO[str], begun: threading.Event) -> None:
    for line in stream:
        log.write(line)
        if "Iteration 0" in line:
            begun.set()
    begun.set()
