"""Parameter servers besides the main server: each holds a part of the global weights (``servers: N``).

The main server decides, tests and writes. Workers send their weights to the parameter servers, part by part, and get
new ones from them. So the main server's link and processor do not delay workers, and N servers have N links (BPT-CNN,
section 3.2.2 and Fig. 3). The parts are ranges of the flat weights. SGWU and AGWU update each element separately, so
they give the same bits as with one server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from itertools import pairwise

import numpy as np

from bpt.base.errors import LostRankError
from bpt.parallel.outer.outer_instructions import AverageSubmitted, Merge
from bpt.parallel.outer.outer_step import OuterStep
from bpt.parallel.outer.staleness import Correction
from bpt.parallel.outer.update_factors import AgwuUpdate
from bpt.system.comm.base import Buffer, Communicator, Request
from bpt.system.events.event import Activity
from bpt.train.outer import messages as wire
from bpt.train.outer.coded_submissions import Coded, identity_codec
from bpt.train.outer.global_weights import GlobalWeights
from bpt.train.outer.outbox import Outbox
from bpt.train.outer.roles import SERVER
from bpt.train.solver.solver import RunOutcome

COMMAND, TABLE, PART, ARRIVED = 11, 12, 13, 14  # tags; that of an arrival is ARRIVED + worker
PAUSE = 0.0005  # seconds to sleep if nothing has arrived
_LENGTH = 16  # numbers in a command
_UPDATE, _STEP = len(fields(AgwuUpdate)), len(fields(OuterStep))


class _Kind(IntEnum):
    """The kind of a command."""

    FETCH = 1  # send the newest weights to a worker, which submits some next
    # worker, the other numbers of the update, an outer step, compensation, entries of the table that follows
    MERGE = 2
    AVERAGE = 3  # number of workers, version, an outer step; a table of workers and factors follows
    GIVE = 4  # send the newest weights to the main server
    PUT = 5  # a submission of a worker in the main server's process follows
    FORGET = 6  # a worker is lost
    END = 7  # send the report, and wait for the outcome of the run
    MEMORY = 8  # send what is remembered besides the weights
    REMEMBER = 9  # continue from what follows


@dataclass(frozen=True)
class ServerPart:
    """The part of a parameter server.

    Attributes:
        rank: its rank.
        span: its range of the flat weights.
    """

    rank: int
    span: slice

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.span.stop - self.span.start)


def parts_of(size: int, ranks: Sequence[int]) -> list[ServerPart]:
    """Return nearly equal parts of the flat weights, one for each of ``ranks``; without ranks, one part on rank 0."""
    if not ranks:
        return [ServerPart(SERVER, slice(0, size))]
    ends = [size * number // len(ranks) for number in range(len(ranks) + 1)]
    return [ServerPart(rank, slice(*between)) for rank, between in zip(ranks, pairwise(ends), strict=True)]


def _step_numbers(step: OuterStep | None) -> tuple[float, ...]:
    """Return an outer step as numbers; without one, zeros."""
    return astuple(step) if step else (0.0,) * _STEP


def _step_of(numbers: Sequence[float]) -> OuterStep | None:
    """Return the outer step at the front of ``numbers``."""
    lr, momentum, uses_momentum = numbers[:_STEP]
    return OuterStep(lr, momentum, bool(uses_momentum)) if lr else None


def _send_memory(comm: Communicator, rank: int, memory: Mapping[str, Buffer]) -> None:
    """Send named values to a rank: their names, then each value."""
    names = np.frombuffer("\n".join(memory).encode(), np.uint8)
    sizes = [values.size for values in memory.values()]
    comm.Send(np.array([names.size, len(sizes)]), rank, TABLE)
    comm.Send(names, rank, TABLE)
    comm.Send(np.array(sizes), rank, TABLE)
    for values in memory.values():
        comm.Send(np.ascontiguousarray(values), rank, TABLE)


def _receive_memory(comm: Communicator, rank: int, dtype: np.dtype[np.generic]) -> dict[str, Buffer]:
    """Receive what ``_send_memory`` has sent."""
    lengths = np.empty(2, np.int64)
    comm.Recv(lengths, rank, TABLE)
    text, sizes = np.empty(lengths[0], np.uint8), np.empty(lengths[1], np.int64)
    comm.Recv(text, rank, TABLE)
    comm.Recv(sizes, rank, TABLE)
    memory: dict[str, Buffer] = {}
    for name, size in zip(text.tobytes().decode().split("\n"), sizes, strict=False):
        memory[name] = np.empty(size, dtype)
        comm.Recv(memory[name], rank, TABLE)
    return memory


class ShardedWeightsClient:
    """The main server's access to weights on parameter servers; it replaces GlobalWeights.

    Args:
        comm: the ranks; only the main server's thread uses it.
        parts: the parameter servers.
        weights: version 0 as flat weights.
        ranks: the rank of each worker; a worker on the main server's rank is served from memory.
    """

    def __init__(self, comm: Communicator, parts: Sequence[ServerPart], weights: Buffer, ranks: Sequence[int]) -> None:
        self._comm = comm
        self._parts = parts
        self._size, self._dtype = weights.size, weights.dtype
        self._ranks = ranks
        for part in parts:
            self._comm.Send(weights[part.span].copy(), part.rank, PART)

    @property
    def newest(self) -> Buffer:
        """The newest version as flat weights."""
        self._command(_Kind.GIVE)
        whole = np.empty(self._size, self._dtype)
        with self._comm.events.part_of(Activity.WITHIN):
            for part in self._parts:
                self._comm.Recv(whole[part.span], part.rank, PART)
        return whole

    def fetch(self, worker: int) -> Buffer | None:
        """Let the parameter servers send the worker the newest version."""
        self._command(_Kind.FETCH, worker)
        return self.newest if self._ranks[worker] == SERVER else None

    def submit(self, worker: int, weights: Buffer | None) -> None:
        """Send a worker's submission to the parameter servers, unless the worker has sent it to them."""
        if weights is not None:
            self._command(_Kind.PUT, worker)
            for part in self._parts:
                self._comm.Send(weights[part.span].copy(), part.rank, PART)

    def forget(self, worker: int) -> None:
        """Tell the parameter servers to drop the data of a lost worker."""
        self._command(_Kind.FORGET, worker)

    def merge(self, instruction: Merge) -> None:
        """Let the parameter servers apply Eq. 10."""
        table = instruction.correction.table
        numbers = *_step_numbers(instruction.step), instruction.correction.compensation, len(table)
        self._command(_Kind.MERGE, *astuple(instruction.update), *numbers)
        for part in self._parts if table else ():
            self._comm.Send(np.array(table, np.float64), part.rank, TABLE)

    def average(self, instruction: AverageSubmitted) -> None:
        """Let the parameter servers apply Eq. 7."""
        self._command(_Kind.AVERAGE, len(instruction.workers), instruction.version, *_step_numbers(instruction.step))
        table = np.array([instruction.workers, instruction.factors], np.float64)
        for part in self._parts:
            self._comm.Send(table, part.rank, TABLE)

    def memory(self) -> Mapping[str, Buffer]:
        """Return what the parameter servers remember besides the weights, assembled from their parts."""
        self._command(_Kind.MEMORY)
        parts = [_receive_memory(self._comm, part.rank, self._dtype) for part in self._parts]
        return {name: np.concatenate([of_part[name] for of_part in parts]) for name in parts[0]}

    def remember(self, memory: Mapping[str, Buffer]) -> None:
        """Let the parameter servers continue from a ``memory``, each with its part."""
        self._command(_Kind.REMEMBER)
        for part in self._parts:
            _send_memory(self._comm, part.rank, {name: values[part.span] for name, values in memory.items()})

    def pop_submission(self, worker: int) -> Buffer:
        """Raise an error: only ASGD pops submissions, and its weights are on rank 0."""
        raise AssertionError(worker)

    def reports(self) -> list[tuple[ServerPart, Buffer]]:
        """Return the final report (REPORTED) of each parameter server."""
        self._command(_Kind.END)
        reports = []
        for part in self._parts:
            report = np.empty(len(REPORTED))
            self._comm.Recv(report, part.rank, TABLE)
            reports.append((part, report))
        return reports

    def finish(self, head: Buffer) -> None:
        """Send the outcome of the run to the parameter servers."""
        for part in self._parts:
            self._comm.Send(head, part.rank, TABLE)

    def _command(self, kind: _Kind, *numbers: float) -> None:
        command = np.zeros(_LENGTH)
        command[: 1 + len(numbers)] = kind, *numbers
        with self._comm.events.part_of(Activity.CONTROL):
            for part in self._parts:
                self._comm.Send(command, part.rank, COMMAND)


REPORTED = ("updates", "seconds", "waited", "sent", "received")
"""The numbers in a report: updates of the part, seconds of work and of waiting, bytes to workers and from them."""


class ParameterServer:
    """A parameter server: executes the main server's commands, in their order.

    Args:
        comm: a communicator that only this object uses.
        part: its part of the weights.
        trained: number of trained elements, which are at the front of all weights.
        dtype: type of the weights.
        ranks: the rank of each worker.
        coded: the codec of submissions.
    """

    def __init__(
        self,
        comm: Communicator,
        part: ServerPart,
        trained: int,
        dtype: np.dtype[np.generic],
        ranks: Sequence[int],
        coded: Coded = identity_codec,
    ) -> None:
        self._comm = comm
        self._ranks = ranks
        self._coming: dict[int, tuple[Buffer, Request]] = {}
        self._outbox = Outbox(comm)
        self._report = dict.fromkeys(REPORTED, 0.0)
        weights = np.empty(part.size, dtype)
        comm.Recv(weights, SERVER, PART)
        self._codings = [coded(rank, part.rank, part.span) for rank in ranks]
        self._weights = GlobalWeights(weights, min(max(trained - part.span.start, 0), part.size))

    def run(self) -> RunOutcome:
        """Serve until the run has ended, and return its outcome."""
        command = np.zeros(_LENGTH)
        awaited = self._comm.Irecv(command, SERVER, COMMAND)
        while True:
            found = self._receive()
            if awaited.Test():
                kind, numbers = _Kind(int(command[0])), command[1:].tolist()
                if kind is _Kind.END:
                    return self._end()
                with self._comm.events.during(Activity.MERGE):
                    start = time.perf_counter()
                    self._execute(kind, numbers)
                    self._report["seconds"] += time.perf_counter() - start
                awaited = self._comm.Irecv(command, SERVER, COMMAND)
            elif not found:
                start = time.perf_counter()
                time.sleep(PAUSE)
                self._report["waited"] += time.perf_counter() - start

    def _receive(self) -> bool:
        """Receive messages from workers; return whether there was one."""
        self._outbox.clean(ignores_lost=True)
        found = False
        for worker, (buffer, request) in list(self._coming.items()):
            arrived = 1.0
            try:
                if not request.Test():
                    continue
                self._report["received"] += buffer.nbytes
                if coding := self._codings[worker]:
                    buffer = coding.decode(buffer, self._weights.base_of(worker))
                self._weights.submit(worker, buffer)
            except LostRankError:
                arrived = 0.0
            del self._coming[worker]
            self._send(np.array([arrived]), SERVER, ARRIVED + worker)
            found = True
        return found

    def _execute(self, kind: _Kind, numbers: Sequence[float]) -> None:
        worker = int(numbers[0])
        match kind:
            case _Kind.FETCH:
                newest = self._weights.fetch(worker)
                if self._ranks[worker] != SERVER:
                    with suppress(LostRankError):  # the main server will report the loss
                        self._send(newest, self._ranks[worker], PART)
                        self._report["sent"] += newest.nbytes
                    coding = self._codings[worker]
                    buffer: Buffer = np.empty(coding.nbytes, np.uint8) if coding else np.empty_like(newest)
                    with suppress(LostRankError):
                        self._coming[worker] = buffer, self._comm.Irecv(buffer, self._ranks[worker], PART)
            case _Kind.MERGE:
                base, newest_version, *others = numbers[1:_UPDATE]
                compensation, entries = numbers[_UPDATE + _STEP : _UPDATE + _STEP + 2]
                table = np.empty((int(entries), 2))
                if entries:
                    self._comm.Recv(table, SERVER, TABLE)
                weights = tuple((int(each), weight) for each, weight in table.tolist())
                update = AgwuUpdate(worker, int(base), int(newest_version), *others)
                self._weights.merge(Merge(update, Correction(compensation, weights), _step_of(numbers[_UPDATE:])))
                self._report["updates"] += 1
            case _Kind.AVERAGE:
                table = np.empty((2, int(numbers[0])))
                self._comm.Recv(table, SERVER, TABLE)
                workers, version = tuple(map(int, table[0])), int(numbers[1])
                self._weights.average(
                    AverageSubmitted(workers, tuple(table[1].tolist()), version, _step_of(numbers[2:]))
                )
                self._report["updates"] += 1
            case _Kind.GIVE:
                self._send(self._weights.newest, SERVER, PART)
            case _Kind.PUT:
                buffer = np.empty_like(self._weights.newest)
                self._comm.Recv(buffer, SERVER, PART)
                self._weights.submit(worker, buffer)
            case _Kind.MEMORY:
                _send_memory(self._comm, SERVER, self._weights.memory())
            case _Kind.REMEMBER:
                self._weights.remember(_receive_memory(self._comm, SERVER, self._weights.newest.dtype))
            case _Kind.FORGET:
                self._coming.pop(worker, None)
                self._weights.forget(worker)

    def _end(self) -> RunOutcome:
        """Send the report, and wait for the outcome of the run."""
        self._comm.Send(np.array([self._report[name] for name in REPORTED]), SERVER, TABLE)
        head = wire.head()
        self._comm.Recv(head, SERVER, TABLE)
        self._outbox.wait(ignores_lost=True)
        return wire.read_head(RunOutcome, head)

    def _send(self, buffer: Buffer, rank: int, tag: int) -> None:
        self._outbox.send(Activity.WEIGHTS if tag == PART else Activity.CONTROL, buffer, rank, tag)
