"""EventBus: passes the events of a rank to their sinks."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from bpt.system.events.event import Action, Event
from bpt.system.events.flight_recorder import FlightRecorder, RecorderEntry

if TYPE_CHECKING:
    import numpy as np

Sink = Callable[[Event], object]
LayersOf = Callable[[int], str]
S = TypeVar("S", bound=Sink)

_NOTHING = nullcontext()


class EventBus:
    """The events of one rank, from all its threads, for its current sinks.

    The thread of an event calls each sink when the event ends, one sink at a time. A sink must be quick. Without sinks,
    events are recorded only in the flight recorder, if there is one.

    Args:
        rank: the rank of these events.
        flight: the recorder of the last events.

    Attributes:
        before_end: called at the end of each instruction, for example to wait for an asynchronous device, whose work
            would otherwise count in a later instruction.
    """

    def __init__(self, rank: int = 0, flight: FlightRecorder | None = None) -> None:
        self.rank = rank
        self.flight = flight
        self.before_end: Callable[[], object] | None = None
        self._sinks: tuple[Sink, ...] = ()
        self._coarse: tuple[Sink, ...] = ()
        self._lock = threading.Lock()
        self._here = _ThreadState({})

    def add(self, sink: S, coarse: bool = False) -> S:
        """Give the events from now on to ``sink``, and return it.

        Args:
            coarse: whether a forward and a backward pass may be one instruction, where that is faster.
        """
        with self._lock:
            self._sinks = (*self._sinks, sink)
            self._coarse += (sink,) * coarse
        return sink

    def remove(self, sink: Sink) -> None:
        """Give no more events to ``sink``. An unknown sink is ignored."""
        with self._lock:
            self._sinks, self._coarse = (
                tuple(each for each in sinks if each is not sink) for sinks in (self._sinks, self._coarse)
            )

    @contextmanager
    def into(self, sink: S) -> Iterator[S]:
        """Give the events of the code inside to ``sink``."""
        self.add(sink)
        try:
            yield sink
        finally:
            self.remove(sink)

    def during(self, what: Action, layers_of: LayersOf | None = None) -> AbstractContextManager[object]:
        """Record ``what``, which the calling thread does inside, and the calls in it.

        Args:
            layers_of: returns the description of a segment's layers; called at the end.
        """
        return _Span(self, what, "", True, layers_of) if self._sinks or self.flight else _NOTHING

    def part_of(self, what: Action, message: str = "") -> AbstractContextManager[object]:
        """Record the calls inside as those of ``what`` and of one of its messages, but not ``what`` itself."""
        return _Span(self, what, message, False) if self._sinks or self.flight else _NOTHING

    @property
    def listens(self) -> bool:
        """Whether there are sinks that need single instructions."""
        return len(self._sinks) > len(self._coarse)

    @property
    def what(self) -> Action | None:
        """The current action of the calling thread. It is not maintained while nothing is recorded."""
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
        """Record a call of ``method``, which runs inside. The other arguments are those of Event."""
        if self._sinks or self.flight:
            return _Call(self, method, calls, sent, received, peer, dtype, flow)
        return _NOTHING

    def waiting(self, method: str) -> AbstractContextManager[object]:
        """Let the flight recorder know that the calling thread waits inside.

        This is no event, since nothing is sent or done.
        """
        return _Call(self, method) if self.flight else _NOTHING

    def emit(self, event: Event) -> None:
        """Pass ``event`` to the sinks."""
        with self._lock:
            for sink in self._sinks:
                sink(event)


class _ThreadState(threading.local):
    """The current action of a thread, and the thread's name, which is unique while it lives."""

    def __init__(self, threads: dict[str, threading.Thread]) -> None:
        self.what: Action | None = None
        self.message = ""
        thread = threading.current_thread()
        others = (f"{thread.name} {number}" for number in itertools.count(2))
        for self.thread in itertools.chain([thread.name], others):
            if threads.setdefault(self.thread, thread) is thread or not threads[self.thread].is_alive():
                threads[self.thread] = thread
                break


class _Span(RecorderEntry):
    __slots__ = ("_before", "_bus", "_flight", "_has_sinks", "_layers_of", "_noted")

    def __init__(
        self,
        bus: EventBus,
        what: Action,
        message: str,
        noted: bool,
        layers_of: LayersOf | None = None,
    ) -> None:
        self._bus, self.what, self.message, self._noted, self._layers_of = bus, what, message, noted, layers_of
        self._flight, self._has_sinks = bus.flight if noted else None, bool(bus._sinks)
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
        if self._has_sinks and bus.before_end is not None and kind is None and self.what and self.what.phase:
            bus.before_end()
        self.end = end = time.perf_counter()
        if self._flight is not None:
            self._flight.end(self)
        if self._has_sinks:
            segment = getattr(self.what, "segment", None)
            layers = "" if self._layers_of is None or segment is None else self._layers_of(segment)
            bus.emit(Event(self.what, self.start, end, bus.rank, here.thread, within=within, layers=layers))
        self._layers_of = None  # the flight recorder keeps this object, which must not keep a closed net


class _Call(RecorderEntry):
    __slots__ = ("_bus", "_calls", "_dtype", "_flight", "_flow", "_has_sinks", "_received", "_sent")

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
        self._bus, self._flight, self._has_sinks = bus, bus.flight, calls >= 0 and bool(bus._sinks)
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
        if self._has_sinks:
            bus.emit(
                Event(
                    self.what, self.start, end, bus.rank, self.thread, self.method, self.message,
                    self._calls, self._sent, self._received, self.peer, self._dtype, self._flow,
                )
            )  # fmt: skip
