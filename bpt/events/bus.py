"""EventBus: takes the events of a rank to whoever wants them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from bpt.events.event import Action, Event
from bpt.events.flight_recorder import Entry, FlightRecorder

if TYPE_CHECKING:
    import numpy as np

Sink = Callable[[Event], object]
LayersOf = Callable[[int], str]
S = TypeVar("S", bound=Sink)

_NOTHING = nullcontext()


class EventBus:
    """The events of one rank, from all its threads, for the sinks that are there at the time.

    A sink is called by the thread that an event is of, when that is over, one at a time; it must be quick. Without
    sinks nothing is noted but in the flight recorder, if there is one.

    Args:
        rank: whose events these are.
        flight: keeps the last of them.

    Attributes:
        before_end: called at the end of each instruction, such as to wait for a device that goes on by
            itself, whose work would appear in a later one.
    """

    def __init__(self, rank: int = 0, flight: FlightRecorder | None = None) -> None:
        self.rank = rank
        self.flight = flight
        self.before_end: Callable[[], object] | None = None
        self._sinks: tuple[Sink, ...] = ()
        self._coarse: tuple[Sink, ...] = ()
        self._lock = threading.Lock()
        self._here = _Here({})

    def add(self, sink: S, coarse: bool = False) -> S:
        """Let ``sink`` have the events from now on; returns it.

        Args:
            coarse: it is content if a forward and a backward pass are one instruction, where that is faster.
        """
        with self._lock:
            self._sinks = (*self._sinks, sink)
            self._coarse += (sink,) * coarse
        return sink

    def remove(self, sink: Sink) -> None:
        """Let ``sink`` have no more; one that is not there is passed over."""
        with self._lock:
            self._sinks, self._coarse = (
                tuple(each for each in sinks if each is not sink) for sinks in (self._sinks, self._coarse)
            )

    @contextmanager
    def into(self, sink: S) -> Iterator[S]:
        """Let ``sink`` have the events of what runs inside."""
        self.add(sink)
        try:
            yield sink
        finally:
            self.remove(sink)

    def during(self, what: Action, layers_of: LayersOf | None = None) -> AbstractContextManager[object]:
        """Note ``what``, which the calling thread does inside, and the calls in it.

        Args:
            layers_of: says what a segment is made of; asked at the end.
        """
        return _Span(self, what, "", True, layers_of) if self._sinks or self.flight else _NOTHING

    def part_of(self, what: Action, message: str = "") -> AbstractContextManager[object]:
        """Note the calls inside as those of ``what``, and of a message of it; not ``what`` itself."""
        return _Span(self, what, message, False) if self._sinks or self.flight else _NOTHING

    @property
    def listens(self) -> bool:
        """Whether there are sinks that tell single instructions apart."""
        return len(self._sinks) > len(self._coarse)

    @property
    def what(self) -> Action | None:
        """What the calling thread does; not kept while nothing is noted."""
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
        if self._sinks or self.flight:
            return _Call(self, method, calls, sent, received, peer, dtype, flow)
        return _NOTHING

    def waiting(self, method: str) -> AbstractContextManager[object]:
        """Let the flight recorder know that the calling thread waits inside; no event, as nothing is sent or done."""
        return _Call(self, method) if self.flight else _NOTHING

    def emit(self, event: Event) -> None:
        """Hand ``event`` to the sinks."""
        with self._lock:
            for sink in self._sinks:
                sink(event)


class _Here(threading.local):
    """What a thread is at, and its name, which no other one has as long as it lives."""

    def __init__(self, threads: dict[str, threading.Thread]) -> None:
        self.what: Action | None = None
        self.message = ""
        thread = threading.current_thread()
        others = (f"{thread.name} {number}" for number in itertools.count(2))
        for self.thread in itertools.chain([thread.name], others):
            if threads.setdefault(self.thread, thread) is thread or not threads[self.thread].is_alive():
                threads[self.thread] = thread
                break


class _Span(Entry):
    __slots__ = ("_before", "_bus", "_flight", "_layers_of", "_noted", "_told")

    def __init__(
        self,
        bus: EventBus,
        what: Action,
        message: str,
        noted: bool,
        layers_of: LayersOf | None = None,
    ) -> None:
        self._bus, self.what, self.message, self._noted, self._layers_of = bus, what, message, noted, layers_of
        self._flight, self._told = bus.flight if noted else None, bool(bus._sinks)
        self.method, self.peer, self.nbytes, self.end = "", None, 0, 0.0

    def __enter__(self) -> None:
        here = self._bus._here
        self._before = here.what, here.message
        here.what, here.message = self.what, self.message
        self.thread = here.thread
        self.start = time.perf_counter()
        if self._flight is not None:
            self._flight.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        bus = self._bus
        here = bus._here
        within = self._before[0]
        here.what, here.message = self._before
        if not self._noted:
            return
        if self._told and bus.before_end is not None and kind is None and self.what and self.what.phase:
            bus.before_end()
        self.end = end = time.perf_counter()
        if self._flight is not None:
            self._flight.end(self)
        if self._told:
            segment = getattr(self.what, "segment", None)
            layers = "" if self._layers_of is None or segment is None else self._layers_of(segment)
            bus.emit(Event(self.what, self.start, end, bus.rank, here.thread, within=within, layers=layers))
        self._layers_of = None  # the flight recorder keeps this, but not a net that is done with


class _Call(Entry):
    __slots__ = ("_bus", "_calls", "_dtype", "_flight", "_flow", "_received", "_sent", "_told")

    def __init__(
        self,
        bus: EventBus,
        method: str,
        calls: int = -1,
        sent: int = 0,
        received: int = 0,
        peer: int | None = None,
        dtype: np.dtype[Any] | None = None,
        flow: int = 0,
    ) -> None:
        self._bus, self._flight, self._told = bus, bus.flight, calls >= 0 and bool(bus._sinks)
        self.method, self.peer, self.nbytes, self.end = method, peer, sent or received, 0.0
        self._calls, self._sent, self._received, self._dtype, self._flow = calls, sent, received, dtype, flow

    def __enter__(self) -> None:
        here = self._bus._here
        self.what, self.message, self.thread = here.what, here.message, here.thread
        self.start = time.perf_counter()
        if self._flight is not None:
            self._flight.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end = end = time.perf_counter()
        if self._flight is not None:
            self._flight.end(self)
        bus = self._bus
        if self._told:
            bus.emit(
                Event(
                    self.what, self.start, end, bus.rank, self.thread, self.method, self.message,
                    self._calls, self._sent, self._received, self.peer, self._dtype, self._flow,
                )
            )  # fmt: skip
