"""What the first iterations of a run try out: the memory layout, then the chunks of gradients."""

from __future__ import annotations

import logging
import time

import torch

from bpt.device import synchronize
from bpt.solvers.engine import Engine
from bpt.solvers.ranks.chunks import Chunks

LOG = logging.getLogger("bpt")

WARM_UP = 2  # iterations at the start of a run that do not count: threads, memory and kernels are made ready


class Trials:
    """Times iterations until all is settled. Every trial is an iteration of training; nothing is computed twice.

    Args:
        engine: the memory layout, tried first.
        chunks: tried in the layout that has won.
    """

    def __init__(self, engine: Engine, chunks: Chunks, device: torch.device) -> None:
        self._engine = engine
        self._chunks = chunks
        self._device = device
        self._start = 0.0
        self._iterations = 0

    @property
    def settled(self) -> bool:
        """Whether nothing is left to try."""
        return self._engine.settled and self._chunks.settled

    def start(self) -> None:
        """An iteration begins."""
        self._start = time.perf_counter()

    def end(self) -> bool:
        """An iteration has ended; whether this settled the last trial. A collective call until then."""
        if self.settled:
            return False
        synchronize(self._device)
        seconds = time.perf_counter() - self._start
        self._iterations += 1
        if not self._engine.settled:  # it has a warm-up of its own
            self._engine.record(seconds)
        elif self._iterations > WARM_UP:
            self._chunks.record(seconds)
        return self.settled

    def finish(self) -> None:
        """Training is over: tell what has not been found out."""
        if not self._chunks.settled:
            LOG.warning(
                "Chunks: training has ended before the search: nothing is chosen, or kept in a file. A run that goes "
                "on searches anew. A smaller cgdp_param { interval range } makes it shorter; chunk_size needs none"
            )
