"""Window: memory that the ranks of one host share, with the names of MPI's windows.

Each rank has its own part, and all see all parts. The numbers do not show their age. So a writer stores them, then
stores a mark (a count, a flag) in the window, and calls ``Sync``; a reader ``wait``s for the mark.

All methods but ``Free`` may be called from any thread of a rank, several at once, while others are in calls of
communicators. In MPI this holds where ``Communicator.concurrent`` is true.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import LostRankError

Memory = NDArray[np.uint8]
Call = Callable[[str], AbstractContextManager[object]]

LINE = 64  # bytes; each part starts at a multiple, so that no two parts share a line of a cache
SLACK = LINE - 1  # the extra bytes that ``aligned`` needs

# Seconds between two checks of ``wait``: the first value, and the largest.
_FIRST, _LAST = 5e-5, 5e-4
# Seconds of waiting between two checks whether the other ranks live.
_DOUBT = 0.2


class Window(ABC):
    """Memory that the ranks of one host share. ``Communicator.Allocate_shared`` makes it.

    Args:
        parts: the memory of each rank, in order of rank.
        call: records the code inside under a method's name, as in Communicator.
    """

    def __init__(self, parts: Sequence[Memory], call: Call) -> None:
        self._parts = parts
        self._call = call

    def Shared_query(self, rank: int) -> Memory:
        """Return the part of ``rank``: flat, shared by all, zeros at first; it starts at a multiple of 64 bytes."""
        return self._parts[rank]

    @abstractmethod
    def Sync(self) -> None:
        """Show the others this rank's earlier stores, and this rank the stores before their Sync.

        Only then does a waiting rank look again: whoever changes an input of a ``done`` calls it afterwards.
        """

    def wait(self, done: Callable[[], bool], recorded: bool = True) -> None:
        """Return as soon as ``done()`` is true, without using up the core.

        Args:
            done: reads the window. This thread calls it repeatedly, each time after a ``Sync``, until it is true. It
                must neither wait nor communicate.
            recorded: as a call "wait"; not within another call.

        Raises:
            LostRankError: a rank of the window is gone. A failure that leaves it alive ends the wait with the job, as
                in any call.
        """
        with self._call("wait") if recorded else nullcontext():
            self._wait(done)

    @abstractmethod
    def Free(self) -> None:
        """Free the memory; a collective call. No rank may use any of it afterwards.

        This is necessary only where windows come and go: the end of the process frees the others. A run that fails does
        not call this.
        """

    def _wait(self, done: Callable[[], bool]) -> None:
        start = asked = time.perf_counter()
        while not self._look(done):
            now = time.perf_counter()
            if now - asked > _DOUBT:
                asked = now
                lost = self._lost()
                if lost and self._look(done):  # it had stored its mark before
                    return
                if lost:
                    raise lost
            # Each check takes the core and the interpreter from the computing thread. This adds a third at most.
            time.sleep(min(max(_FIRST, (now - start) / 3), _LAST))

    def _look(self, done: Callable[[], bool]) -> bool:
        self.Sync()
        if not done():
            return False
        self.Sync()  # later reads must not have been loaded before the mark
        return True

    def _lost(self) -> LostRankError | None:
        """Return why waiting is useless; ``None`` if it is not."""
        return None


def aligned(memory: Memory, nbytes: int) -> Memory:
    """Return ``nbytes`` of ``memory``, which is longer by SLACK, from a multiple of LINE on.

    The result is the same bytes in all processes that share them: memory is mapped by pages, so the remainder is equal
    everywhere.
    """
    start = -memory.ctypes.data % LINE
    assert memory.size >= start + nbytes
    return memory[start : start + nbytes]
