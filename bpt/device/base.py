"""What a stream and an event are, on any device."""

from __future__ import annotations

from typing import Protocol

from bpt.worker_thread import Work


class Event(Protocol):
    """A point in a stream: it is reached when all that the stream was given before it is done."""

    def wait(self) -> None:
        """Block the calling thread until the event is reached.

        Raises:
            Exception: what the work before it raised; the same one on every call.
            RunError: the stream was closed or forgotten before it came here.
        """

    def done(self) -> bool:
        """Whether ``wait`` would return, or raise, at once."""


class Stream(Protocol):
    """Does what it is given one after the other, beside other streams.

    A stream whose work fails stays failed: what it is given from then on is skipped, and every event recorded since
    raises what the work raised, as does the work of streams that go on ``after`` such an event.

    A stream may be used from any thread; the order is that of the calls.
    """

    def run(self, work: Work) -> None:
        """Do ``work`` when all that was submitted before is done; return at once.

        On a CUDA device work that copies or computes there only *enqueues*, so it returns long before the device is
        done. Memory that it uses must stay until an event recorded after it is reached: torch's allocator gives freed
        memory to the stream that it came from, which does not wait for this one.
        """

    def submit(self, work: Work) -> Event:
        """``run`` and ``record`` in one, at the price of one: the thread is woken once."""

    def after(self, event: Event) -> None:
        """What is submitted from now on starts when ``event``, of any stream, is reached."""

    def record(self) -> Event:
        """An event that is reached when all that was submitted so far is done."""

    def close(self) -> None:
        """End the stream once what it is at is done, without waiting for that.

        What it has not begun is dropped, and events not reached by then raise ``RunError``. A stream that is
        forgotten closes itself. Closing twice is allowed.
        """
