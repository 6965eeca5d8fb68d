"""Links between ranks: what is sent arrives, bytes of weights are counted, and a worker that dies is noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from bpt.base.errors import DataError, LostRankError
from bpt.base.signals import SignalAction
from bpt.data import shipped
from bpt.data.lmdb_file import DatumRecord
from bpt.data.sampler import Sampler
from bpt.data.shipped import RecordCache, RecordStream
from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.system.comm.base import Communicator
from bpt.train.outer.messages import LENGTH, WorkerProgress
from bpt.train.outer.remote import RemoteServer, RemoteWorker
from bpt.train.outer.worker_links import Event, Submission, WorkerLost
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import Killed, run_ranks
from tests.support.lmdbs import write_records

T = TypeVar("T")
SIZE, KIND = 5, np.dtype(np.float32)
BYTES, HEAD = SIZE * 4, LENGTH * 8
ORDER = Order(7, 3, Fraction(5, 2), Fraction(2), ((0, 4), (9, 2**40)), 2)
REPORT = SubmissionReport(7, Fraction(7, 3), 4, 30, 1.25, 0.125, 0.9, 2.5)
STOP = Order(7, 4, Fraction(3), Fraction(3), weights=False, stop=True)


def numbers(start: float = 0.0) -> NDArray[np.float32]:
    return np.arange(start, start + SIZE, dtype=np.float32)


def linked(
    serve: Callable[[RemoteWorker], object],
    work: Callable[[RemoteServer], object],
    streams: Sequence[RecordStream] = (),
    caches: Sequence[RecordCache] = (),
) -> dict[str, tuple[int, int]]:
    """A server on rank 0, and worker 7 on rank 1. Returns the bytes that the server has sent and received of what."""

    def rank(world: Communicator) -> dict[str, tuple[int, int]]:
        comm = world.Dup()
        seen = Seen(comm)
        if world.rank:
            work(RemoteServer(comm, 7, SIZE, KIND, [cache.append for cache in caches]))
            return {}
        link = RemoteWorker(comm, 1, 7, SIZE, KIND, streams)
        serve(link)
        assert link.poll() is None
        found: dict[str, tuple[int, int]] = {}
        for (what, _), traffic in seen.calls().items():
            if traffic.sent or traffic.received:  # not where it only looks whether something has come
                sent, received = found.get(what, (0, 0))
                found[what] = sent + traffic.sent, received + traffic.received
        return found

    return run_ranks(2, rank, timeout=120.0)[0]


def event(link: RemoteWorker) -> Event:
    """The next one."""
    while (found := link.poll()) is None:
        pass
    return found


def settle(link: RemoteWorker) -> None:
    """Wait until all is there."""
    while not link.idle:
        assert link.poll() is None


def test_a_round() -> None:
    """An order with weights, a submission, and an order that stops."""
    given, trained = numbers(), numbers(100)

    def serve(link: RemoteWorker) -> None:
        assert link.idle
        link.send(ORDER, given)
        assert not link.idle
        submission = event(link)
        assert isinstance(submission, Submission)
        assert submission.report == REPORT
        np.testing.assert_array_equal(submission.weights, trained)
        assert submission.weights.dtype == KIND
        link.send(STOP, None)
        settle(link)
        assert (link.sent, link.received) == (BYTES, BYTES)
        link.hurry()  # nobody is there to hear it
        assert link.idle

    def work(server: RemoteServer) -> None:
        order, weights = server.order()
        assert order == ORDER and weights is not None
        np.testing.assert_array_equal(weights, given)
        assert not server.hurried
        server.submit(REPORT, trained)
        assert server.order() == (STOP, None)

    counted = linked(serve, work)
    assert counted["weights"] == (BYTES, BYTES)
    # Two orders and the runs of one; of heads, it listens for one more than comes.
    assert counted["control"] == (2 * HEAD + 2 * 16, 2 * HEAD)
    assert counted.keys() == {"weights", "control"}


def test_many_rounds_count_as_in_eq_11() -> None:
    """2 c_w K for a worker: it submits K times, and gets weights at the start and after all but the last."""
    rounds = 6

    def serve(link: RemoteWorker) -> None:
        link.send(Order(7, 0), numbers())
        for number in range(rounds):
            assert isinstance(event(link), Submission)
            last = number == rounds - 1
            link.send(Order(7, number, weights=not last, stop=last), None if last else numbers())
        settle(link)
        assert link.sent + link.received == 2 * BYTES * rounds

    def work(server: RemoteServer) -> None:
        while not server.order()[0].stop:
            server.submit(REPORT, numbers())

    linked(serve, work)


def test_what_is_told_comes_before_the_submission() -> None:
    words: list[WorkerProgress | Settled] = [
        Settled(7, 2, 1),
        WorkerProgress(7, 5, 0.5, 1.5),
        WorkerProgress(7, 6, 0.75, 1.25, SignalAction.STOP, True),
    ]

    def serve(link: RemoteWorker) -> None:
        link.send(Order(7, 0, weights=False), None)
        assert [event(link) for _ in words] == words
        assert isinstance(event(link), Submission)
        link.send(STOP, None)
        settle(link)
        assert (link.sent, link.received) == (0, BYTES)

    def work(server: RemoteServer) -> None:
        assert server.order() == (Order(7, 0, weights=False), None)
        for word in words:
            server.report(word)
        server.submit(REPORT, numbers())
        server.order()

    linked(serve, work)


def test_hurry_while_it_trains() -> None:
    """It is asked for until the worker submits, and forgotten with the next order."""

    def serve(link: RemoteWorker) -> None:
        link.send(ORDER, numbers())
        assert event(link) == WorkerProgress(7)
        link.hurry()
        assert isinstance(event(link), Submission)
        link.send(ORDER, numbers())
        assert isinstance(event(link), Submission)
        link.send(STOP, None)
        settle(link)

    def work(server: RemoteServer) -> None:
        server.order()
        assert not server.hurried
        server.report(WorkerProgress(7))
        while not server.hurried:
            pass
        assert server.hurried
        server.submit(REPORT, numbers())
        server.order()
        assert not server.hurried
        server.submit(REPORT, numbers())
        server.order()

    linked(serve, work)


def test_hurry_that_crosses_a_submission() -> None:
    """The worker finds it before its order, several times over, and does not take it for that."""

    def serve(link: RemoteWorker) -> None:
        link.send(ORDER, numbers())
        assert isinstance(event(link), Submission)
        link.hurry()
        link.hurry()
        link.send(STOP, None)
        settle(link)

    def work(server: RemoteServer) -> None:
        server.order()
        server.submit(REPORT, numbers())
        assert server.order() == (STOP, None)

    linked(serve, work)


RECORD = {f"{index:02d}".encode(): bytes([index]) * 40 for index in range(12)}


def test_records_arrive_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an order's runs, for each of two data layers, and no others; before the worker trains."""
    original = RecordStream.pieces
    monkeypatch.setattr(RecordStream, "pieces", lambda stream, runs: original(stream, runs, size=100))
    source = write_records(tmp_path / "db", RECORD)
    other = write_records(tmp_path / "other", {key: value[:7] for key, value in RECORD.items()})
    streams = [RecordStream(path, Sampler([12])) for path in (source, other)]
    first, more = ((0, 3), (8, 12)), ((3, 4),)

    def serve(link: RemoteWorker) -> None:
        link.send(Order(7, 0, runs=first), numbers(1))
        assert isinstance(event(link), Submission)
        link.send(Order(7, 1), numbers(2))  # no more samples
        assert isinstance(event(link), Submission)
        link.send(Order(7, 2, runs=more, weights=False), None)
        assert isinstance(event(link), Submission)
        link.send(STOP, None)
        settle(link)

    def has(cache: RecordCache, length: int, *indices: int) -> bool:
        items = [DatumRecord(key, value[:length]) for key, value in RECORD.items()]
        return [cache.record(index) for index in indices] == [items[index] for index in indices]

    with RecordCache(streams[0].header) as one, RecordCache(streams[1].header) as two:

        def work(server: RemoteServer) -> None:
            for version in range(3):
                order, weights = server.order()
                assert order.version == version
                assert (weights is None) == (version == 2)
                if weights is not None:
                    np.testing.assert_array_equal(weights, numbers(version + 1))
                assert has(one, 40, 0, 1, 2, 8, 9, 10, 11) and has(two, 7, 0, 1, 2, 8, 9, 10, 11)
                for cache in (one, two) if version < 2 else ():
                    with pytest.raises(DataError, match="record 3 of 12 was not sent"):
                        cache.record(3)
                server.submit(REPORT, numbers())
            assert has(one, 40, 3) and has(two, 7, 3)
            server.order()

        counted = linked(serve, work, streams, (one, two))
    for stream in streams:
        stream.close()
    # 8 records: a row of 3 numbers, a key of 2 bytes, and 40 or 7 bytes each. 100 bytes end a piece: 3 + 3 + 1 records
    # of 40, all of 7, then one of either. Sizes: of each piece, and of the end of each layer in both orders.
    pieces = (3 + 1) + (1 + 1)
    assert counted["records"] == (8 * 2 * (24 + 2) + 8 * (40 + 7) + (pieces + 4) * 16, 0)
    assert counted["weights"] == (2 * BYTES, 3 * BYTES)
    assert shipped.PIECE > 1000


@pytest.mark.parametrize("moment", ["at once", "training", "half submitted", "waiting"])
def test_a_worker_that_dies(moment: str) -> None:
    """The server is told, once; what it still sends goes nowhere; and the other worker goes on."""

    def serve(comm: Communicator) -> None:
        dead, other = (RemoteWorker(comm, rank, rank - 1, SIZE, KIND) for rank in (1, 2))
        for link in (dead, other):
            link.send(ORDER, numbers())
        assert isinstance(event(other), Submission)
        seen = event(dead)
        while seen != WorkerLost(0):
            seen = event(dead)
        assert dead.poll() is None and dead.idle
        dead.send(ORDER, numbers())
        dead.hurry()
        assert dead.poll() is None and dead.idle
        other.send(STOP, None)
        settle(other)

    def rank(world: Communicator) -> str:
        comm = world.Dup()
        if world.rank == 0:
            serve(comm)
            return "served"
        if world.rank == 1 and moment == "at once":
            raise Killed
        server = RemoteServer(comm, world.rank - 1, SIZE, KIND)
        order, _ = server.order()
        if world.rank == 1 and moment == "half submitted":
            comm.Send(np.array([2.0, 1.0, 1.0] + [0.0] * (LENGTH - 3)), 0, 1)  # a report without its weights
        elif world.rank == 2 or moment == "waiting":
            server.submit(SubmissionReport(order.worker, Fraction(1)), numbers())
        if world.rank == 1:
            raise Killed
        assert server.order()[0].stop
        return "worked"

    assert run_ranks(3, rank, timeout=120.0, tolerant=True) == ["served", "worked"]


def test_a_server_that_dies() -> None:
    """A worker cannot go on alone."""

    def rank(world: Communicator) -> str:
        comm = world.Dup()
        if world.rank == 0:
            raise Killed
        with pytest.raises(LostRankError, match=r"rank 0 .* is gone"):
            RemoteServer(comm, 0, SIZE, KIND).order()
        return "noticed"

    assert run_ranks(2, rank, timeout=120.0, tolerant=True) == ["noticed"]
