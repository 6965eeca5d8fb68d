"""Tracing: records the events of all ranks during a run, and writes them to one file."""

from __future__ import annotations

import gzip
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Protocol, cast

import numpy as np

from bpt.base.atomic import atomic_file, check_place
from bpt.base.errors import RunError, UsageError, WriteError
from bpt.perf.trace import clock_offset
from bpt.perf.trace.chrome import ChromeTrace
from bpt.perf.trace.clock_offset import SAME, Offset
from bpt.perf.trace.perfetto import PerfettoTrace
from bpt.perf.trace.recorder import Recorder, TraceSpan, read
from bpt.system.comm.base import Communicator

LOG = logging.getLogger("bpt")

PIECE = 2**22  # largest message with recorded events, in bytes


class Format(Protocol):
    """A format of traces; ChromeTrace describes its methods."""

    def process(self, rank: int, name: str, label: str) -> None: ...
    def track(self, rank: int, number: int, name: str, kind: str) -> None: ...
    def span(self, rank: int, track: int, span: TraceSpan, start: int, end: int) -> None: ...
    def close(self, about: dict[str, object]) -> None: ...


FORMATS: dict[str, Callable[[IO[bytes]], Format]] = {
    ".json": ChromeTrace,
    ".json.gz": ChromeTrace,
    ".pftrace": PerfettoTrace,
}


def check_file(path: str) -> None:
    """Check before a run that its trace can be written.

    Raises:
        UsageError: the suffix of the file's name is not that of a format.
        FileError: the file cannot be written.
    """
    if not path.endswith(tuple(FORMATS)):
        raise UsageError(
            f"--trace {path}: the name must end in .json or .json.gz (Chrome's trace format) or .pftrace (Perfetto's)"
        )
    check_place(path)


@contextmanager
def tracing(path: str, world: Communicator) -> Iterator[None]:
    """Record the events of all ranks in the block to the trace ``path``; a collective call.

    Without a path it does nothing. At the end, the first of the remaining ranks writes the trace. If the block raises
    an error on rank 0, that rank writes its own events.

    Raises:
        WriteError: the rank that writes the file cannot write it.
    """
    if not path:
        yield
        return
    hosts = world.allgather(world.host)
    comm = world.Dup()
    start = time.perf_counter()
    offsets: list[Offset] = comm.bcast(_align(comm))
    with ExitStack() as stack:
        recorder = Recorder()
        stack.callback(recorder.close)
        try:
            with world.events.into(recorder):
                yield
        except BaseException:
            if world.rank == 0:
                with _not_masking():
                    _write(
                        path, [_own(recorder, hosts[0], 0)], start, {"ranks missing": _others(world, "the run failed")}
                    )
            raise
        living = comm.Shrink()
        left = [comm.world_ranks.index(rank) for rank in living.world_ranks]
        if living.rank:
            _send(living, recorder)
            return
        ranks = [_own(recorder, hosts[world.rank], world.rank)]
        missing = {rank: "it was lost" for rank in range(world.size) if rank not in left}
        for place, rank in enumerate(left[1:], 1):
            first = offsets[rank].beside(offsets[world.rank])
            try:
                ranks.append(stack.enter_context(_receive(living, place, rank, hosts[rank], first)))
            except RunError as error:
                missing[rank] = str(error)
        _write(path, ranks, start, {"ranks missing": missing} if missing else {})


def _others(world: Communicator, why: str) -> dict[int, str]:
    return dict.fromkeys(range(1, world.size), why)


@contextmanager
def _not_masking() -> Iterator[None]:
    """Log a WriteError instead of raising it, because it would hide the error that ended the run."""
    try:
        yield
    except WriteError as error:
        LOG.error("Trace: %s", error)


class RankRecording:
    """The recorded events of one rank.

    Attributes:
        offsets: the offsets of its clock at the start and at the end of the run.
    """

    def __init__(self, rank: int, host: str, file: IO[bytes], length: int, dropped: int, offsets: Sequence[Offset]):
        self.rank, self.host, self.offsets, self.dropped = rank, host, offsets, dropped
        self._file, self._length = file, length

    def spans(self) -> Iterator[TraceSpan]:
        """Yield all spans, in the order in which they ended."""
        return read(self._file, self._length)

    @property
    def error(self) -> float:
        """The largest possible error of its times in seconds."""
        return max(offset.error for offset in self.offsets)


def _align(comm: Communicator) -> list[Offset]:
    """Return the current offsets of all ranks on the first rank; on the others, answer it."""
    if comm.rank:
        clock_offset.answer(comm)
        return []
    return [SAME, *(clock_offset.ask(comm, rank) for rank in range(1, comm.size))]


def _own(recorder: Recorder, host: str, rank: int) -> RankRecording:
    file, length = recorder.finish()
    return RankRecording(rank, host, file, length, recorder.dropped, [SAME])


def _send(comm: Communicator, recorder: Recorder) -> None:
    """Send this rank's events to the first rank, which calls ``_receive``."""
    clock_offset.answer(comm)
    file, length = recorder.finish()
    comm.Send(np.array([length, recorder.dropped]), 0)
    for begin in range(0, length, PIECE):
        comm.Send(np.frombuffer(file.read(min(PIECE, length - begin)), np.uint8), 0)


@contextmanager
def _receive(comm: Communicator, place: int, rank: int, host: str, first: Offset) -> Iterator[RankRecording]:
    """Receive the events of ``rank``, whose rank among the remaining ones is ``place``."""
    last = clock_offset.ask(comm, place)
    head = np.zeros(2, np.int64)
    comm.Recv(head, place)
    length, dropped = head.tolist()
    with tempfile.TemporaryFile(prefix="bpt-trace-") as file:
        for begin in range(0, length, PIECE):
            piece = np.empty(min(PIECE, length - begin), np.uint8)
            comm.Recv(piece, place)
            file.write(piece.data)
        file.seek(0)
        yield RankRecording(rank, host, file, length, dropped, [first, last])


def _write(path: str, ranks: Sequence[RankRecording], start: float, about: dict[str, object]) -> None:
    """Write the trace; times are since ``start``, on the clock of the first of ``ranks``."""
    (make,) = {form for suffix, form in FORMATS.items() if path.endswith(suffix)}
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(atomic_file(path))
        if path.endswith(".gz"):
            zipped = stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5, filename=""))
            file = cast(IO[bytes], zipped)
        trace = make(file)
        for rank in ranks:
            label = f"clock error {rank.error * 1e6:.1f} µs" if rank is not ranks[0] else "the trace's clock"
            trace.process(rank.rank, f"rank {rank.rank} ({rank.host})", label)
            _write_rank(trace, rank, start)
        errors = {f"clock error of rank {rank.rank} (us)": round(rank.error * 1e6, 3) for rank in ranks}
        dropped = {f"events dropped by rank {rank.rank}": rank.dropped for rank in ranks if rank.dropped}
        trace.close({"program": "bpt train"} | about | errors | dropped)
    LOG.info("Trace: wrote %s", path)


def _write_rank(trace: Format, rank: RankRecording, start: float) -> None:
    tracks: dict[tuple[str, str], int] = {}
    named: Counter[str] = Counter()
    for span in rank.spans():
        begin, end = (round((clock_offset.to_first(rank.offsets, at) - start) * 1e9) for at in (span.start, span.end))
        key = span.kind, span.thread
        if key not in tracks:
            tracks[key] = len(tracks) + 1
            named[span.kind] += 1
            name = span.kind if named[span.kind] == 1 else f"{span.kind} ({span.thread})"
            trace.track(rank.rank, tracks[key], name, span.kind)
        trace.span(rank.rank, tracks[key], span, max(begin, 0), max(end, begin, 0))
