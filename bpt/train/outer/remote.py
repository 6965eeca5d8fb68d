"""Links between the server's rank and workers' ranks: heads, samples and weights as messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import torch

from bpt.base.errors import LostRankError
from bpt.data.shipped import RecordChunk, RecordStream
from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.system.comm.base import Buffer, Communicator, Request
from bpt.system.events.event import Activity
from bpt.train.outer import messages as wire
from bpt.train.outer.coded_submissions import Coded, identity_codec
from bpt.train.outer.messages import MessageKind, WorkerProgress
from bpt.train.outer.outbox import Outbox, RecordSender
from bpt.train.outer.parameter_server import ARRIVED, PART, parts_of
from bpt.train.outer.roles import SERVER
from bpt.train.outer.worker_links import Event, Submission, WorkerLost
from bpt.train.solver.solver import RunOutcome

_HEAD, _WEIGHTS, _RUNS, _SIZES, _TABLE, _CONTENT = range(1, 7)  # tags


class RemoteWorker:
    """The server's link to a worker on another rank.

    Args:
        comm: a communicator that only this link uses.
        worker: its number.
        size, dtype: number and type of the elements of the weights.
        streams: the records of the data layers, of which the worker gets those of its samples.
        holders: the ranks of parameter servers, which exchange weights with workers; empty: this rank does.
        coded: the codec of submissions.

    Attributes:
        sent, received: bytes of weights.
    """

    def __init__(
        self,
        comm: Communicator,
        rank: int,
        worker: int,
        size: int,
        dtype: np.dtype[np.generic],
        streams: Sequence[RecordStream] = (),
        holders: Sequence[int] = (),
        coded: Coded = identity_codec,
    ) -> None:
        self._comm = comm
        self._rank = rank
        self._worker = worker
        self._size = size
        self._dtype = dtype
        parts = parts_of(size, holders)
        of_parts = [coded(rank, part.rank, part.span) for part in parts]
        self._coding = None if holders else of_parts[0]
        self._base: Buffer | None = None  # the weights that the worker got last, if its submissions refer to them
        self._submitted = sum(
            coding.nbytes if coding else part.size * dtype.itemsize
            for part, coding in zip(parts, of_parts, strict=True)
        )
        self._head = wire.head()
        self._awaited: Request | None = None
        self._holders = holders
        self._coming: tuple[SubmissionReport, Buffer | None, list[Request], list[Buffer]] | None = None
        self._outbox = Outbox(comm)
        self._records = RecordSender(self._outbox, rank, streams, (_SIZES, _TABLE, _CONTENT))
        self._is_lost = False
        self.sent = 0
        self.received = 0
        self._listen()

    def poll(self) -> Event | None:
        """Return the next event from the worker, or ``None`` if there is none."""
        if self._is_lost:
            return None
        try:
            return self._poll()
        except LostRankError:
            return self._lose()

    def send(self, order: Order, weights: Buffer | None) -> None:
        """Send an order to the worker."""
        if self._is_lost:
            return
        try:
            self._send(Activity.CONTROL, wire.write_head(order), _HEAD)
            if order.runs or order.gives:
                self._send(Activity.CONTROL, wire.write_runs(order), _RUNS)
            if order.runs:
                self._records.begin(order.runs)
            if weights is not None:
                self._send(Activity.WEIGHTS, weights, _WEIGHTS)
                self._base = weights if self._coding else None
            self.sent += self._bytes * order.weights
        except LostRankError:
            pass  # the next poll reports it
        if order.stop:
            self._awaited = None

    def hurry(self) -> None:
        """Ask the worker to submit after its iteration."""
        if self._awaited is not None or self._coming is not None:  # it has no order to stop
            self._notify(wire.hurry_head())

    def finish(self, outcome: RunOutcome) -> None:
        """Send the outcome of the run to the worker, which has stopped."""
        self._notify(wire.write_head(outcome))

    def _notify(self, head: Buffer) -> None:
        if not self._is_lost:
            with suppress(LostRankError):  # the next poll reports it
                self._send(Activity.CONTROL, head, _HEAD)

    @property
    def idle(self) -> bool:
        """Whether no message is under way in either direction."""
        return self._is_lost or (self._coming is None and not self._outbox and not self._records.is_sending)

    def _listen(self) -> None:
        with self._comm.events.part_of(Activity.CONTROL):
            self._awaited = self._comm.Irecv(self._head, self._rank, _HEAD)

    def _poll(self) -> Event | None:
        self._outbox.clean()
        self._records.advance()
        if self._coming is not None:
            return self._arrived(*self._coming)
        if self._awaited is None or not self._awaited.Test():
            return None
        kind = wire.kind_of(self._head)
        if kind is not MessageKind.SUBMIT:
            word: Event = (
                wire.read_head(WorkerProgress, self._head, worker=self._worker)
                if kind is MessageKind.PROGRESS
                else wire.read_head(Settled, self._head, worker=self._worker)
            )
            self._listen()
            return word
        report = wire.read_head(SubmissionReport, self._head, worker=self._worker)
        if self._holders:
            words: list[Buffer] = [np.zeros(1) for _ in self._holders]
            with self._comm.events.part_of(Activity.CONTROL):
                pairs = zip(words, self._holders, strict=True)
                requests = [self._comm.Irecv(word, rank, ARRIVED + self._worker) for word, rank in pairs]
            self._coming = report, None, requests, words
            return None
        coding = self._coding
        weights: Buffer = np.empty(coding.nbytes, np.uint8) if coding else np.empty(self._size, self._dtype)
        with self._comm.events.part_of(Activity.WEIGHTS):
            request = self._comm.Irecv(weights, self._rank, _WEIGHTS)
        self._coming = report, weights, [request], []
        return None

    @property
    def _bytes(self) -> int:
        """Bytes of the weights."""
        return self._size * self._dtype.itemsize

    def _arrived(
        self, report: SubmissionReport, weights: Buffer | None, requests: Sequence[Request], words: Sequence[Buffer]
    ) -> Event | None:
        """Return the submission when it is complete, here or on the parameter servers; before that, ``None``."""
        if sum(request.Test() for request in requests) < len(requests):
            return None
        if not all(word[0] for word in words):  # the worker died before it had sent all
            return self._lose()
        self._coming = None
        self.received += self._submitted
        self._listen()
        if self._coding and weights is not None:
            weights = self._coding.decode(weights, self._base)
        return Submission(report, weights)

    def _send(self, activity: Activity, buffer: Buffer, tag: int) -> None:
        self._outbox.send(activity, buffer, self._rank, tag)

    def _lose(self) -> WorkerLost:
        self._is_lost = True
        self._coming, self._awaited = None, None
        self._outbox.clear()
        return WorkerLost(self._worker)


class RemoteServer:
    """A worker's link to the server on rank 0.

    Args:
        comm: a communicator that only this link uses.
        worker: the number of this worker.
        size, dtype: number and type of the elements of the weights.
        keep: a function for each data layer, which stores the records that the server sends.
        holders, coded: as in RemoteWorker.
    """

    def __init__(
        self,
        comm: Communicator,
        worker: int,
        size: int,
        dtype: np.dtype[np.generic],
        keep: Sequence[Callable[[RecordChunk], object]] = (),
        holders: Sequence[int] = (),
        coded: Coded = identity_codec,
    ) -> None:
        self._comm = comm
        self._worker = worker
        self._size = size
        self._dtype = dtype
        self._keep = keep
        self._parts = parts_of(size, holders)
        self._codings = [coded(comm.rank, part.rank, part.span) for part in self._parts]
        self._rests = [torch.from_numpy(np.zeros(c.trained if c else 0, dtype)) for c in self._codings]
        self._base: Buffer | None = None
        self._tag = PART if holders else _WEIGHTS
        self._head = wire.head()
        self._awaited = self._listen()
        self._outbox = Outbox(comm)
        self._hurried = False

    def report(self, word: WorkerProgress | Settled) -> None:
        """Report the progress of a pass, or the choice of how to compute."""
        self._outbox.clean()
        self._outbox.send(Activity.CONTROL, wire.write_head(word), SERVER, _HEAD)

    def submit(self, report: SubmissionReport, weights: Buffer) -> None:
        """Submit weights, or gradients, to the server."""
        self._outbox.send(Activity.CONTROL, wire.write_head(report), SERVER, _HEAD)
        for part, coding, rest in zip(self._parts, self._codings, self._rests, strict=True):
            values = weights[part.span]
            if coding:
                values = coding.encode(values, None if self._base is None else self._base[part.span], rest)
            self._outbox.send(Activity.WEIGHTS, values, part.rank, self._tag)

    def order(self) -> tuple[Order, Buffer | None]:
        """Wait for the next order, and the weights that come with it."""
        self._awaited.Wait()
        while wire.kind_of(self._head) is MessageKind.HURRY:
            self._awaited = self._listen()
            self._awaited.Wait()
        runs = wire.empty_runs(self._head)
        if len(runs):
            with self._comm.events.part_of(Activity.CONTROL):
                self._comm.Recv(runs, SERVER, _RUNS)
        order = wire.read_order(self._head, self._worker, runs)
        self._hurried = False
        weights, coming = None, []
        if order.weights:
            weights = np.empty(self._size, self._dtype)
            with self._comm.events.part_of(Activity.WEIGHTS):
                coming = [self._comm.Irecv(weights[part.span], part.rank, self._tag) for part in self._parts]
        if order.runs:
            for keep in self._keep:
                self._receive(keep)
        for each in coming:
            each.Wait()
        self._outbox.wait()
        if any(coding and coding.differs for coding in self._codings) and weights is not None:
            self._base = weights
        if not order.stop:
            self._awaited = self._listen()
        return order, weights

    def finished(self) -> RunOutcome:
        """Wait for the end of the run after an order to stop, and return its outcome."""
        self._listen().Wait()
        while wire.kind_of(self._head) is not MessageKind.FINISHED:  # a request to hurry may arrive after the stop
            self._listen().Wait()
        return wire.read_head(RunOutcome, self._head)

    @property
    def hurried(self) -> bool:
        """Whether the server has asked for a submission after this iteration."""
        if not self._hurried and self._awaited.Test():
            assert wire.kind_of(self._head) is MessageKind.HURRY, self._head
            self._hurried = True
            self._awaited = self._listen()
        return self._hurried

    def _receive(self, keep: Callable[[RecordChunk], object]) -> None:
        """Receive the records of one layer."""
        sizes = np.zeros(2, np.int64)
        with self._comm.events.part_of(Activity.RECORDS):
            self._comm.Recv(sizes, SERVER, _SIZES)
            while sizes.any():
                records, length = sizes.tolist()
                chunk = RecordChunk(np.empty((records, 3), np.int64), np.empty(length, np.uint8))
                self._comm.Recv(chunk.table, SERVER, _TABLE)
                self._comm.Recv(chunk.content, SERVER, _CONTENT)
                keep(chunk)
                self._comm.Recv(sizes, SERVER, _SIZES)

    def _listen(self) -> Request:
        with self._comm.events.part_of(Activity.CONTROL):
            return self._comm.Irecv(self._head, SERVER, _HEAD)
