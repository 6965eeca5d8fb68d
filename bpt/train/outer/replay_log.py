"""The replay log: the decisions of a run's schedule, line by line, from which the run can be repeated bit for bit."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import FileIO
from typing import Any

from bpt.base.errors import FileError, UserError, WriteError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import different_fields
from bpt.config.proto.text import parse_text
from bpt.parallel.outer.outer_instructions import OuterInstruction, Settled, from_line, to_line

_TITLE = "bpt replay log"
_FORMAT = 2


@dataclass(frozen=True)
class RunFacts:
    """The facts that must be equal for a run to be repeated.

    Attributes:
        solver: the relevant part of the solver's text (see relevant_solver).
        net, weights: digests of the net's text and of the weights at the start.
        samples: N, the number of samples.
        workers: m, the number of workers.
        seed: the seed of all random numbers.
        threads: number of threads of each worker; empty: not known yet.
    """

    solver: str
    net: str
    weights: str
    samples: int
    workers: int
    seed: int
    threads: tuple[int, ...] = ()


@dataclass(frozen=True)
class RecordedRun:
    """The content of a log: facts of the run, and its ``instructions`` in order."""

    path: str
    facts: RunFacts
    instructions: tuple[OuterInstruction, ...]

    @property
    def engines(self) -> dict[int, tuple[int, int]]:
        """The memory layout and inner engine of each worker that has tried several."""
        return {each.worker: (each.engine, each.inner) for each in self.instructions if isinstance(each, Settled)}


class ReplayLog:
    """Writes a log, each line at once, so that it is complete however the run ends."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def begin(self, facts: RunFacts) -> None:
        """Write the first line."""
        self._write(json.dumps({_TITLE: _FORMAT, **asdict(facts)}))

    def add(self, instruction: OuterInstruction) -> None:
        """Write the next line."""
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
    """Provide a new log at ``path``.

    Raises:
        WriteError: the log cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = FileIO(path, "w")
    except OSError as error:
        raise WriteError(path, error.strerror) from error
    with file:
        yield ReplayLog(file)


def read_log(path: str) -> RecordedRun:
    """Return the log at ``path``.

    Raises:
        FileError: the log cannot be read, or is not a replay log; the message names the line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise FileError(path, f"cannot read the replay log: {reason}") from None
    facts = _facts(path, lines[0])
    instructions = []
    if not lines[-1]:
        lines.pop()  # the empty text after the last newline
    for number, line in enumerate(lines[1:], 2):
        try:
            instructions.append(from_line(line))
        except UserError as error:
            half = "; the file was cut: remove this line to repeat what stands before it" * (number == len(lines))
            raise FileError(f"{path}:{number}", f"{error}{half}") from None
    return RecordedRun(path, facts, tuple(instructions))


def check_replay(recorded: RecordedRun, now: RunFacts) -> None:
    """Check that the log is of this run; only the workers' numbers of threads may differ.

    Raises:
        UserError: the log is of another run; the message says what differs.
    """
    was, is_ = _comparable(recorded.facts), _comparable(now)
    different = [f"{name} ({was[name]}, now {is_[name]})" for name in was if was[name] != is_[name]]
    different[:0] = _solver_differences(recorded.facts.solver, now.solver)
    if different:
        raise UserError(
            f"{recorded.path}: this log is of another run: {', '.join(different)}; --replay needs the same files, "
            "--set and number of ranks"
        )


def remarks(recorded: RecordedRun, threads: Sequence[int]) -> Iterator[str]:
    """Yield remarks on workers with other ``threads`` than in the log, which may change roundings."""
    for worker, (before, after) in enumerate(zip(recorded.facts.threads, threads, strict=True)):
        if before != after:
            yield f"worker {worker} computed with {before} threads, and has {after} now: roundings may differ"


def _comparable(facts: RunFacts) -> Mapping[str, Any]:
    return {
        "network text": facts.net, "weights at the start": facts.weights, "samples": facts.samples,
        "workers": facts.workers, "random_seed": facts.seed,
    }  # fmt: skip


def _solver_differences(was: str, now: str) -> list[str]:
    if was == now:
        return []
    messages = [parse_text(text, pb.SolverParameter, partial=True).message for text in (was, now)]
    return list(different_fields(*messages)) or ["solver text"]


def _facts(path: str, line: str) -> RunFacts:
    try:
        fields = json.loads(line)
        if fields.pop(_TITLE) != _FORMAT:
            raise ValueError(line)
        lists = {"threads": tuple(fields["threads"])}
        parse_text(fields["solver"], pb.SolverParameter, partial=True)
        return RunFacts(**{**fields, **lists})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # a PrototxtError is a ValueError
        raise FileError(
            path, "this is no replay log of bpt; bpt train writes one as <snapshot_prefix>_run/replay.jsonl"
        ) from None
