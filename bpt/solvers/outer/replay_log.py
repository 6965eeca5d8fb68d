"""The replay log: what a run's schedule decided, line by line, so that the run can be repeated bit for bit."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import FileIO
from typing import Any

from bpt.errors import FileError, UserError, WriteError
from bpt.schedule.outer.entries import from_line, to_line
from bpt.schedule.outer.instructions import Instruction, Settled

_TITLE = "bpt replay log"
_FORMAT = 1


@dataclass(frozen=True)
class RunFacts:
    """What must be the same for a run to be repeated.

    Attributes:
        solver, net, weights: digests of the solver's text, the net's and the weights at the start.
        samples: N.
        workers: m.
        threads: that each worker computes with.
        seed: of everything random.
    """

    solver: str
    net: str
    weights: str
    samples: int
    workers: int
    threads: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class RecordedRun:
    """A log as read: ``instructions`` in order."""

    path: str
    facts: RunFacts
    instructions: tuple[Instruction, ...]

    @property
    def engines(self) -> dict[int, tuple[int, int]]:
        """Worker → memory layout and inner engine, of those that have tried."""
        return {each.worker: (each.engine, each.inner) for each in self.instructions if isinstance(each, Settled)}


class ReplayLog:
    """Writes a log, so that what is there is on disk whenever the run ends, in whatever way."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def begin(self, facts: RunFacts) -> None:
        """The first line."""
        self._write(json.dumps({_TITLE: _FORMAT, **asdict(facts)}))

    def add(self, instruction: Instruction) -> None:
        """The next line."""
        self._write(to_line(instruction))

    def _write(self, line: str) -> None:
        try:
            data = f"{line}\n".encode()
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise WriteError(self._file.name, error.strerror) from error


@contextmanager
def writing(path: str) -> Iterator[ReplayLog]:
    """A new log at ``path``.

    Raises:
        WriteError: it cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = FileIO(path, "w")
    except OSError as error:
        raise WriteError(path, error.strerror) from error
    with file:
        yield ReplayLog(file)


def read_log(path: str) -> RecordedRun:
    """The log at ``path``. A last line that was not finished, of a run that was killed, is left out.

    Raises:
        FileError: it cannot be read or is no replay log; it says which line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise FileError(path, f"cannot read the replay log: {reason}") from None
    facts = _facts(path, lines[0])
    instructions = []
    for number, line in enumerate(lines[1:-1], 2):  # behind the last newline there is nothing whole
        try:
            instructions.append(from_line(line))
        except UserError as error:
            raise FileError(f"{path}:{number}", str(error)) from None
    return RecordedRun(path, facts, tuple(instructions))


def check_replay(recorded: RecordedRun, now: RunFacts) -> Iterator[str]:
    """Remarks on what may make the repeated run differ.

    Raises:
        UserError: it is another run; it says what differs.
    """
    was, is_ = _comparable(recorded.facts), _comparable(now)
    different = [f"{name} ({was[name]}, now {is_[name]})" for name in was if was[name] != is_[name]]
    if different:
        raise UserError(
            f"{recorded.path}: this log is of another run: {', '.join(different)}; --replay needs the same files, "
            "flags and number of ranks"
        )
    for worker, (before, after) in enumerate(zip(recorded.facts.threads, now.threads, strict=True)):
        if before != after:
            yield f"worker {worker} computed with {before} threads, and has {after} now: roundings may differ"


def _comparable(facts: RunFacts) -> Mapping[str, Any]:
    return {
        "solver text": facts.solver, "network text": facts.net, "weights at the start": facts.weights,
        "samples": facts.samples, "workers": facts.workers, "random_seed": facts.seed,
    }  # fmt: skip


def _facts(path: str, line: str) -> RunFacts:
    try:
        fields = json.loads(line)
        if fields.pop(_TITLE) != _FORMAT:
            raise ValueError(line)
        lists = {"threads": tuple(fields["threads"])}
        return RunFacts(**{**fields, **lists})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FileError(
            path, "this is no replay log of bpt; bpt train writes one as <snapshot_prefix>_run/replay.jsonl"
        ) from None
