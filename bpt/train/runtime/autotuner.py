"""Autotuner: tries out memory layout, inner layer and chunks of gradients in the first iterations of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import torch

from bpt.parallel.cgdp.tuner import Chunks
from bpt.system.device import synchronize
from bpt.train.runtime.tuned_settings import TunedSetting

LOG = logging.getLogger("bpt")

WARM_UP = 2  # iterations at the start of a run that do not count: threads, memory and kernels are made ready


class Autotuner:
    """Times iterations until all choices are settled; every trial is an iteration of training.

    Nothing is computed twice.

    Args:
        engines: the memory layout, then the inner layer: each is tried with what has won before.
        chunks: tried last.
    """

    def __init__(self, engines: Sequence[TunedSetting], chunks: Chunks, device: torch.device) -> None:
        self._engines = engines
        self._chunks = chunks
        self._device = device
        self._start = 0.0
        self._iterations = 0

    @property
    def settled(self) -> bool:
        """Whether nothing is left to try."""
        return all(engine.settled for engine in self._engines) and self._chunks.settled

    @property
    def engines(self) -> tuple[int, ...]:
        """The memory layout and the inner engine that are used from now on."""
        return tuple(engine.settle() for engine in self._engines)

    def start(self) -> None:
        """Begin an iteration."""
        self._start = time.perf_counter()

    def end(self) -> bool:
        """End an iteration; return whether this settled the last trial. A collective call until then."""
        if self.settled:
            return False
        synchronize(self._device)
        seconds = time.perf_counter() - self._start
        self._iterations += 1
        trying = next((engine for engine in self._engines if not engine.settled), None)
        if trying is not None:  # it has a warm-up of its own
            trying.record(seconds)
        elif self._iterations > WARM_UP:
            self._chunks.record(seconds)
        return self.settled

    def finish(self) -> None:
        """Report at the end of training what has not been found out."""
        if not self._chunks.settled:
            LOG.warning(
                "Chunks: training has ended before the search: nothing is chosen, or kept in a file. A run that goes "
                "on searches anew. A smaller cgdp_param { interval range } makes it shorter; chunk_size needs none"
            )
