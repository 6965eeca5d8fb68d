"""FlightRecorder: the last instructions and messages of a rank, capacity in memory to be read when something fails.

The name is that of PyTorch's and NCCL's. It is always on where there are several ranks, so recording must cost almost
nothing. The objects that the event bus makes for each instruction and call anyway are put into a ring. They become
words only on request.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bpt.system.events.event import Action, Activity

CAPACITY = 2048  # entries; a power of two
_NO_WORDS = "its start"
_DISK = (Activity.WAIT_FOR_DATA, Activity.MAKE_BATCH, Activity.WRITE, Activity.SNAPSHOT)

LayersOf = Callable[[int], str]


class RecorderEntry:
    """An instruction, an activity, or a call to other ranks, from its begin on, as in Event.

    Attributes:
        method: the communicator's method, for a call; "" if the entry is ``what`` itself.
        nbytes: the size of the message that a call sends or receives.
        start, end: times of ``time.perf_counter``; ``end`` is 0 while the entry is active.
        iteration, number: the iteration, and the number of instructions that its training thread had begun in it.
        outer: the entry that was active in its thread when it began.
    """

    __slots__ = (
        "end", "iteration", "message", "method", "nbytes", "number", "outer", "peer", "start", "thread", "what",
    )  # fmt: skip

    what: Action | None
    method: str
    message: str
    peer: int | None
    nbytes: int
    thread: str
    start: float
    end: float
    iteration: int
    number: int
    outer: RecorderEntry | None


class Position(NamedTuple):
    """The position of a rank in its iteration.

    Attributes:
        iteration: the iteration; -1 before the first.
        number: how many instructions the rank had begun in it when its current action began. Ranks with the same
            schedule begin the same ones.
        words: the position in words.
        waits: whether the rank waits for other ranks.
        peer: the rank that it waits for; -1 for several, or if it does not wait.
        seconds: how long the current action has lasted.
        begun: when that action began, for comparisons only; 0 between two actions.
        disk: whether the action is reading or writing.
    """

    iteration: int
    number: int
    words: str
    waits: bool
    peer: int
    seconds: float
    begun: float
    disk: bool


class FlightRecorder:
    """A ring of entries, of all threads of a rank. The training thread makes it.

    Args:
        capacity: the number of entries that it holds; a power of two.

    Attributes:
        iteration: the current iteration of the rank; -1 before the first.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.iteration = -1
        self._thread = threading.current_thread().name
        self._number = 0
        self._layers_of: Callable[[], LayersOf | None] = lambda: None
        self._entries: list[RecorderEntry | None] = [None] * capacity
        self._last = capacity - 1
        self._places = itertools.count()  # next() on it is atomic for all threads
        self._under_way: dict[str, RecorderEntry | None] = {}  # the innermost entry of each thread

    def begin_iteration(self, iteration: int, layers_of: Callable[[], LayersOf | None]) -> None:
        """Record that an iteration begins.

        Args:
            layers_of: returns a short description of a segment's layers, as long as its owner exists.
        """
        self.iteration, self._number, self._layers_of = iteration, 0, layers_of

    def begin(self, entry: RecorderEntry) -> None:
        """Record ``entry``, which the calling thread begins."""
        thread = entry.thread
        entry.outer = self._under_way.get(thread)
        self._under_way[thread] = entry
        if thread == self._thread and not entry.method and entry.what.__class__ is not Activity:
            self._number += 1
        entry.iteration, entry.number = self.iteration, self._number
        self._entries[next(self._places) & self._last] = entry

    def end(self, entry: RecorderEntry) -> None:
        """Record the end of the last entry that the calling thread began."""
        self._under_way[entry.thread] = entry.outer
        entry.outer = None  # otherwise the ring would keep more entries alive than its capacity

    @property
    def position(self) -> Position:
        """Return the position of the training thread. Any thread may call this."""
        own = self._under_way.get(self._thread)
        if own is None:
            return Position(self.iteration, self._number, self._between, False, -1, 0.0, 0.0, False)
        at, waits = own, bool(own.method)
        if own.method == WAIT:  # it waits for another thread, which may wait for other ranks
            others = (each for thread, each in list(self._under_way.items()) if thread != self._thread)
            calls = [each for each in others if each is not None and each.method]
            at, waits = min(calls, key=lambda each: each.start, default=own), bool(calls)
        number = self._number_of(at)
        peer = -1 if at.peer is None or not waits else at.peer
        seconds, disk = time.perf_counter() - at.start, at.what in _DISK
        return Position(own.iteration, number, self.words(at), waits, peer, seconds, at.start, disk)

    @property
    def _between(self) -> str:
        return _NO_WORDS if self.iteration < 0 else f"iteration {self.iteration}, between two instructions"

    def _number_of(self, entry: RecorderEntry) -> int:
        """Return the number of the instruction that an entry is, or belongs to.

        Meanwhile, another thread may have begun a later one.
        """
        if not entry.method:
            return entry.number
        for each in reversed(self.entries()):
            own = each.thread == self._thread and not each.method
            if own and each.what == entry.what and each.iteration == entry.iteration:
                return each.number
        return entry.number

    def entries(self) -> list[RecorderEntry]:
        """Return all recorded entries, in the order of their begin."""
        return sorted((each for each in list(self._entries) if each is not None), key=lambda each: each.start)

    def words(self, entry: RecorderEntry) -> str:
        """Return a description of an entry, such as ``Allreduce in X2 (conv2) of iteration 57``."""
        layers_of, segment = self._layers_of(), getattr(entry.what, "segment", None)
        layers = "" if layers_of is None or segment is None else f" ({layers_of(segment)})"
        what = "" if entry.what is None else f"{entry.what}{layers}"
        call = f"{entry.method}{'' if entry.peer is None else f' with rank {entry.peer}'}"
        words = what if not entry.method or entry.method == WAIT else f"{call}, {what}" if what else call
        return f"{words or _NO_WORDS} in iteration {entry.iteration}" if entry.iteration >= 0 else words or _NO_WORDS

    def lines(self) -> Iterator[str]:
        """Yield a line for each entry, oldest first: begin and length in ms, thread, and description."""
        now = time.perf_counter()
        yield f"{'ms ago':>12}  {'took ms':>10}  {'thread':<24}  what"
        for entry in self.entries():
            took = f"{(entry.end - entry.start) * 1e3:.3f}" if entry.end else "under way"
            size = f", {entry.nbytes} bytes" if entry.nbytes else ""
            message = f", {entry.message}" if entry.message else ""
            words = "waits for current work" if entry.method == WAIT else self.words(entry)
            yield f"{(now - entry.start) * 1e3:>12.3f}  {took:>10}  {entry.thread:<24}  {words}{message}{size}"


WAIT = "wait for another thread"
"""The method of an entry of a wait for another thread of the same rank. It is not a call to other ranks."""
