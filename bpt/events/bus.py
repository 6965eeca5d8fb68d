"""EventBus: takes the events of a rank to whoever wants them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from bpt.events.event import Activity, Event

if TYPE_CHECKING:
    import numpy as np

    from bpt.schedule.instructions import Instruction

Sink = Callable[[Event], object]
LayersOf = Callable[[int], str]
S = TypeVar("S", bound=Sink)

_NOTHING = nullcontext()


class EventBus:
    """The events of one rank, from all its threads, for the sinks that are there at the time.

    A sink is called by the thread that an event is of, when that is over, one at a time; it must be quick. Without
    sinks nothing is noted.

    Args:
        rank: whose events these are.

    Attributes:
        before_end: called at the end of each instruction, such as to wait for a device that goes on by
            itself, whose work would appear in a later one.
    """

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.before_end: Callable[[], object] | None = None
        self._sinks: tuple[Sink, ...] = ()
        self._lock = threading.Lock()
        self._here = _Here({})

    def add(self, sink: S) -> S:
        """Let ``sink`` have the events from now on; returns it."""
        with self._lock:
            self._sinks = (*self._sinks, sink)
        return sink

    def remove(self, sink: Sink) -> None:
        """Let ``sink`` have no more; one that is not there is passed over."""
        with self._lock:
            self._sinks = tuple(each for each in self._sinks if each is not sink)

    @contextmanager
    def into(self, sink: S) -> Iterator[S]:
        """Let ``sink`` have the events of what runs inside."""
        self.add(sink)
        try:
            yield sink
        finally:
            self.remove(sink)

    def during(self, what: Instruction | Activity, layers_of: LayersOf | None = None) -> AbstractContextManager[object]:
        """Note ``what``, which the calling thread does inside, and the calls in it.

        Args:
            layers_of: says what a segment is made of; asked at the end.
        """
        return _Span(self, what, "", True, layers_of) if self._sinks else _NOTHING

    def part_of(self, what: Instruction | Activity, message: str = "") -> AbstractContextManager[object]:
        """Note the calls inside as those of ``what``, and of a message of it; not ``what`` itself."""
        return _Span(self, what, message, False) if self._sinks else _NOTHING

    @property
    def listens(self) -> bool:
        """Whether there are sinks."""
        return bool(self._sinks)

    @property
    def what(self) -> Instruction | Activity | None:
        """What the calling thread does; not kept while there are no sinks."""
        return self._here.what

    def call(
        self,
        method: str,
        sent: int,
        received: int,
        calls: int = 1,
        peer: int | None = None,
        dtype: np.dtype[Any] | None = None,
        flow: int = 0,
    ) -> AbstractContextManager[object]:
        """Note a call of ``method``, which runs inside; the rest is as in Event."""
        return _Call(self, (method, calls, sent, received, peer, dtype, flow)) if self._sinks else _NOTHING

    def emit(self, event: Event) -> None:
        """Hand ``event`` to the sinks."""
        with self._lock:
            for sink in self._sinks:
                sink(event)


class _Here(threading.local):
    """What a thread is at, and its name, which no other one has as long as it lives."""

    def __init__(self, threads: dict[str, threading.Thread]) -> None:
        self.what: Instruction | Activity | None = None
        self.message = ""
        thread = threading.current_thread()
        others = (f"{thread.name} {number}" for number in itertools.count(2))
        for self.thread in itertools.chain([thread.name], others):
            if threads.setdefault(self.thread, thread) is thread or not threads[self.thread].is_alive():
                threads[self.thread] = thread
                break


class _Span:
    __slots__ = ("_before", "_bus", "_layers_of", "_message", "_noted", "_start", "_what")

    def __init__(
        self,
        bus: EventBus,
        what: Instruction | Activity,
        message: str,
        noted: bool,
        layers_of: LayersOf | None = None,
    ) -> None:
        self._bus, self._what, self._message, self._noted, self._layers_of = bus, what, message, noted, layers_of

    def __enter__(self) -> None:
        here = self._bus._here
        self._before = here.what, here.message
        here.what, here.message = self._what, self._message
        self._start = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        bus = self._bus
        here = bus._here
        here.what, here.message = self._before
        if self._noted:
            if bus.before_end is not None and kind is None and self._what.phase:
                bus.before_end()
            end, within, segment = time.perf_counter(), self._before[0], getattr(self._what, "segment", None)
            layers = "" if self._layers_of is None or segment is None else self._layers_of(segment)
            bus.emit(Event(self._what, self._start, end, bus.rank, here.thread, within=within, layers=layers))


class _Call:
    __slots__ = ("_bus", "_seen", "_start")

    def __init__(self, bus: EventBus, seen: tuple[str, int, int, int, int | None, np.dtype[Any] | None, int]) -> None:
        self._bus, self._seen = bus, seen

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = time.perf_counter()
        bus, here = self._bus, self._bus._here
        method, calls, sent, received, peer, dtype, flow = self._seen
        bus.emit(
            Event(
                here.what, self._start, end, bus.rank, here.thread, method, here.message,
                calls, sent, received, peer, dtype, flow,
            )
        )  # fmt: skip
