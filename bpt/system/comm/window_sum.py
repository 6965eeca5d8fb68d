"""WindowSum: sums over the ranks of one host, in memory that they share.

It is for libraries whose sums within a host are slow: gloo's go through the operating system's network.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bpt.system.comm.base import Buffer, Communicator
from bpt.system.comm.pieces import pieces
from bpt.system.comm.window import LINE

ROOM = 2**21  # bytes of an area; a longer buffer is summed piece by piece
UNDIVIDED = 2**14  # bytes up to which each rank sums all elements: to wait for others' slices would take longer
_ARRIVED, _SUMMED = range(2)


class WindowSum:
    """Sums buffers over all ranks of ``comm``, which are on one host. Making it is a collective call.

    Each rank copies its numbers into an area of the window, sums a slice of all areas in order of rank, and copies the
    other slices from the areas of the ranks that summed them.

    Ranks mark their progress with the number of the sum, which grows, so no mark is ever cleared. Each rank has two
    areas and uses them in turn. No number is overwritten too early: a rank enters sum n + 2 only after all have entered
    sum n + 1, and these have read all that they need of sum n.

    Args:
        room: the bytes of an area.

    Raises:
        RunError: the ranks cannot share memory; on all ranks.
    """

    def __init__(self, comm: Communicator, room: int = ROOM) -> None:
        self._rank = comm.rank
        self._room = room
        self._window = comm.Allocate_shared(LINE + 2 * room)
        parts = [self._window.Shared_query(rank) for rank in range(comm.size)]
        self._marks = [part[:LINE].view(np.int64) for part in parts]
        self._areas = [[part[start : start + room] for part in parts] for start in (LINE, LINE + room)]
        self._number = 0

    def sum(self, buffer: Buffer) -> None:
        """Leave the sum over all ranks in ``buffer``, equal on all to the last bit; a collective call."""
        with np.errstate(over="ignore", invalid="ignore"):  # gradients may be infinite, as under a loss scale
            for piece in pieces(buffer, self._room):
                if piece.size:
                    self._sum(piece)

    def free(self) -> None:
        """Free the window; a collective call."""
        self._marks.clear()
        self._areas.clear()
        self._window.Free()

    def _sum(self, piece: Buffer) -> None:
        self._number += 1
        areas = [area[: piece.nbytes].view(piece.dtype) for area in self._areas[self._number % 2]]
        areas[self._rank][...] = piece
        self._meet(_ARRIVED)
        if piece.nbytes <= UNDIVIDED:
            _add(areas, piece)
            return
        step = LINE // piece.itemsize  # nobody writes to a line that another rank reads
        bounds = [rank * piece.size // (len(areas) * step) * step for rank in range(len(areas))]
        slices = [slice(*each) for each in pairwise([*bounds, piece.size])]
        own = slices[self._rank]
        _add([area[own] for area in areas], piece[own])
        areas[self._rank][own] = piece[own]
        self._meet(_SUMMED)
        for rank, (area, part) in enumerate(zip(areas, slices, strict=True)):
            if rank != self._rank:
                piece[part] = area[part]

    def _meet(self, mark: int) -> None:
        """Mark this rank's progress, and wait until all ranks have come as far."""
        number, marks = self._number, self._marks
        self._window.Sync()  # what the mark tells of comes before the mark
        marks[self._rank][mark] = number
        self._window.wait(lambda: all(of_rank[mark] >= number for of_rank in marks), recorded=False)


def _add(parts: Sequence[Buffer], total: Buffer) -> None:
    """Set ``total`` to the sum of two or more parts, in their order."""
    first, second, *others = parts
    np.add(first, second, out=total)
    for other in others:
        total += other
