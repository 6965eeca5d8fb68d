"""Window: memory that the ranks of one host share, with the names of MPI's windows.

Each rank has a part of its own, and all see all parts. Numbers alone tell a reader nothing of their age: a writer
stores them, then stores a mark (a count, a flag) in the window, and calls ``Sync``; a reader ``wait``s for the mark.

All methods but ``Free`` may be called from any thread of a rank, several at once, while others are in calls of
communicators; in MPI that is so where ``Communicator.concurrent`` is true.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import LostRankError

Memory = NDArray[np.uint8]
Call = Callable[[str], AbstractContextManager[object]]

LINE = 64  # bytes: where a part starts is a multiple, so that no two parts are in one line of a cache
SLACK = LINE - 1  # bytes more that memory must have for ``aligned``

# Seconds between two looks of ``wait``: at first, and at most.
_FIRST, _LAST = 5e-5, 5e-4
# Seconds of waiting after which, again and again, the other ranks' life is looked after.
_DOUBT = 0.2


class Window(ABC):
    """See the file's docstring. Made by ``Communicator.Allocate_shared``.

    Args:
        parts: each rank's memory, in order of rank.
        call: counts what runs inside under a method's name, see Communicator.
    """

    def __init__(self, parts: Sequence[Memory], call: Call) -> None:
        self._parts = parts
        self._call = call

    def Shared_query(self, rank: int) -> Memory:
        """Return the part of ``rank``: flat, shared by all, zeros at first; it starts at a multiple of 64 bytes."""
        return self._parts[rank]

    @abstractmethod
    def Sync(self) -> None:
        """Let the others see what this rank has stored before, and this rank what they stored before their Sync.

        A waiting rank may look again only then: whoever changes what a ``done`` depends on calls it afterwards.
        """

    def wait(self, done: Callable[[], bool]) -> None:
        """Return as soon as ``done()`` is true, without using up the core; counted as "wait".

        Args:
            done: looks at the window. Called again and again by this thread, with a ``Sync`` before, until it is true;
                it must neither wait nor communicate.

        Raises:
            LostRankError: a rank of the window is gone. A failure that leaves it alive ends the wait with the job, as
                any call's.
        """
        with self._call("wait"):
            self._wait(done)

    @abstractmethod
    def Free(self) -> None:
        """Give the memory back; a collective call. Nothing of it may be used afterwards, on no rank.

        Only where windows come and go it must be called: what is left when the process ends goes with it, in good
        order or not. A run that fails does not come here.
        """

    def _wait(self, done: Callable[[], bool]) -> None:
        start = asked = time.perf_counter()
        while not self._look(done):
            now = time.perf_counter()
            if now - asked > _DOUBT:
                asked = now
                lost = self._lost()
                if lost and self._look(done):  # it had done its part before
                    return
                if lost:
                    raise lost
            # Each look takes the core and the interpreter from the thread that computes. This adds a third at most.
            time.sleep(min(max(_FIRST, (now - start) / 3), _LAST))

    def _look(self, done: Callable[[], bool]) -> bool:
        self.Sync()
        if not done():
            return False
        self.Sync()  # what is read next must not have been loaded before the mark was seen
        return True

    def _lost(self) -> LostRankError | None:
        """Return why nobody need be waited for any more; ``None``: there is no such reason."""
        return None


def aligned(memory: Memory, nbytes: int) -> Memory:
    """``nbytes`` of ``memory``, which has SLACK more, from a multiple of LINE on.

    The same bytes in all processes that share them: memory is mapped by pages, so that the rest is everywhere equal.
    """
    start = -memory.ctypes.data % LINE
    assert memory.size >= start + nbytes
    return memory[start : start + nbytes]
