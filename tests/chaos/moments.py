"""Losses at random moments: a process of a job is killed by the system's own signal, and the others must heal."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.chaos.calls import LARS
from tests.chaos.losses import ALONE, COPIES
from tests.mpi.mpirun import in_session, started
from tests.solver.spread_runs import Saved, remove_snapshots, set_up, train

LENGTH = "max_iter: 240 snapshot: 240 display: 10 test_interval: 40"
SETTINGS: Mapping[str, tuple[int, str, tuple[str, ...]]] = {
    "ALLREDUCE": (3, "", ()),
    "RING": (3, "", ("parallel_param { exchange: RING }",)),
    "TREE": (3, "", ("parallel_param { exchange: TREE }", COPIES)),
    "CGDP": (3, "", ("parallel_param { exchange: CGDP cgdp_param { step: 1 range: 1 interval: 1 } }",)),
    "LARS": (3, LARS, ()),
    "min_ranks": (3, "", ("parallel_param { fault_param { min_ranks: 2 } }",)),
    "spares": (3, "", ("parallel_param { fault_param { spares: 1 } }",)),
}
"""Ranks, what changes the curve, and what does not."""


class Moment(NamedTuple):
    """A rank is killed so many seconds after the first iteration has been displayed."""

    rank: int
    delay: float


def campaign(seed: int, first: int, runs: int) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Jobs by number, of a setting, a rank and a moment drawn by that seed, in the current folder; by default 200."""
    set_up(Path.cwd())
    expected: dict[str, Saved] = {}
    names = list(SETTINGS)
    for number in range(first, first + (runs or 200)):
        choice, name = random.Random(f"{seed} {number}"), names[number % len(names)]
        ranks, changes, _ = SETTINGS[name]
        if changes not in expected:
            train(1, ALONE, LENGTH, *filter(None, [changes]))
            expected[changes] = Saved.read(240)
            remove_snapshots()
        moment = Moment(choice.randrange(ranks), choice.uniform(0, 1.5))
        words = f"{name}: rank {moment.rank} {moment.delay:.3f} s after the first iteration"
        yield number, words, partial(check, name, moment, expected[changes])


def check(name: str, moment: Moment, expected: Saved) -> None:
    """That the job ends well, with the weights of an undisturbed run, in the current folder."""
    ranks, changes, overrides = SETTINGS[name]
    words = [sys.executable, "-m", "bpt", "train", "--solver=solver.prototxt"]
    words += [f"--set={text}" for text in (ALONE, LENGTH, changes, *overrides) if text]
    with started(ranks, words, options=("--with-ft", "ulfm")) as job:
        log = []
        assert job.stderr is not None
        for line in job.stderr:
            log.append(line)
            if "Iteration 0 (" in line or "Iteration 0, " in line:
                break
        time.sleep(moment.delay)  # the moment is the point
        for pid in ranks_of(job.pid, moment.rank):
            os.kill(pid, signal.SIGKILL)
        log += job.stderr
        status = job.wait(timeout=180)
    text = "".join(log)
    assert status == 0 and "bug in bpt" not in text, text[-3000:]
    Saved.read(240).check(expected, 1e-4)
    remove_snapshots()


def ranks_of(session: int, rank: int) -> list[int]:
    """The process of a rank, the last of its generation: what the launcher started may be a proxy of it."""
    mark = f"OMPI_COMM_WORLD_RANK={rank}".encode()
    found = []
    for pid in in_session(session):
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
        except OSError:  # it has just ended
            continue
    return found[-1:]
