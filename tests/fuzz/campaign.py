"""Long runs: each target in a process of its own, so that one that dies or hangs tells of it, too."""

from __future__ import annotations

import multiprocessing as mp
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.engine import FailureError, Tally, rng_of, run_cases
from tests.fuzz.targets import TARGETS

_PATIENCE = 120.0  # seconds without a new case; a target's own limit is far below, but C code does not feel it
_POLL = 0.1  # seconds


@dataclass
class Outcome:
    """What came of a target's cases.

    Attributes:
        failure: why it stopped, in words; empty if all cases went well.
        number: the case that failed.
    """

    target: str
    tally: Tally
    failure: str = ""
    number: int = 0


@dataclass
class _Running:
    """A target at work."""

    target: str
    process: Any
    answers: Connection
    current: Any  # the number of the case under way
    seen: int = -1
    since: float = field(default_factory=time.monotonic)


def run(targets: Sequence[str], seed: int, numbers: range, jobs: int) -> Iterator[Outcome]:
    """Run the cases ``numbers`` of each of the targets, ``jobs`` of them at a time; yields what comes, as it comes.

    Whoever stops asking stops the processes.
    """
    context = mp.get_context("spawn")
    waiting = list(targets)
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(context, waiting.pop(0), seed, numbers))
            time.sleep(_POLL)
            for work in list(running):
                outcome = _look(work)
                if outcome is not None:
                    running.remove(work)
                    _end(work)
                    yield outcome
    finally:
        for work in running:
            _end(work)


def case_of(target: str, seed: int, number: int) -> bytes:
    """The case itself."""
    with tempfile.TemporaryDirectory() as folder:
        made = TARGETS[target](Path(folder))
        return made.case(rng_of(made, seed, number))


def _start(context: Any, target: str, seed: int, numbers: range) -> _Running:
    here, there = context.Pipe(duplex=False)
    current = context.Value("q", numbers.start)
    process = context.Process(target=_work, args=(target, seed, numbers, current, there), daemon=True)
    process.start()
    there.close()
    return _Running(target, process, here, current)


def _work(target: str, seed: int, numbers: range, current: Any, answers: Connection) -> None:
    """In the process: run all cases and send one Outcome."""
    import torch  # noqa: PLC0415  not needed by the process that waits

    torch.set_num_threads(1)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)  # what C libraries say of damaged files
        kind = TARGETS[target](Path(folder))
        failure = ""
        for number in numbers:
            current.value = number
            try:
                run_cases(kind, seed, range(number, number + 1), tally)
            except FailureError as error:
                failure = str(error)
                break
        answers.send(Outcome(target, tally, failure, current.value))


def _look(work: _Running) -> Outcome | None:
    """The outcome, if there is one by now."""
    if work.answers.poll():
        try:
            answer = work.answers.recv()
            assert isinstance(answer, Outcome)
            return answer
        except EOFError:
            work.process.join()
            failure = f"{work.target}: the process died: status {work.process.exitcode}"
            return Outcome(work.target, Tally(), failure, work.current.value)
    if work.current.value != work.seen:
        work.seen, work.since = work.current.value, time.monotonic()
    elif time.monotonic() - work.since > _PATIENCE:
        return Outcome(work.target, Tally(), f"{work.target}: hangs, not in Python", work.seen)
    return None


def _end(work: _Running) -> None:
    work.process.kill()
    work.process.join()
    work.answers.close()
