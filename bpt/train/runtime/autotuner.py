"""Autotuner: tries out memory layout, inner layer and chunks of gradients in the first iterations of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import torch

from bpt.parallel.balance.dynamic_balancer import DynamicLoadBalancer
from bpt.parallel.cgdp.tuner import Chunks
from bpt.system.device import synchronize
from bpt.train.runtime.tuned_settings import TunedSetting

LOG = logging.getLogger("bpt")

WARM_UP = 2  # iterations at the start of a run that do not count: threads, memory and kernels are made ready


class Autotuner:
    """Times iterations until all choices are settled; every trial is an iteration of training.

    Nothing is computed twice.

    Args:
        engine_settings: the memory layout, then the inner layer: each is tried with what has won before.
        chunks: tried last.
        balancer: divides batches anew when all choices are settled; ``None``: it is not done.

    Attributes:
        engine_settings, chunks: see above.
    """

    def __init__(
        self,
        engine_settings: Sequence[TunedSetting],
        chunks: Chunks,
        device: torch.device,
        balancer: DynamicLoadBalancer | None = None,
    ) -> None:
        self.engine_settings = engine_settings
        self.chunks = chunks
        self._device = device
        self._balancer = balancer
        self._start = 0.0
        self._iterations = 0

    @property
    def settled(self) -> bool:
        """Whether nothing is left to try."""
        return all(engine.settled for engine in self.engine_settings) and self.chunks.settled

    @property
    def engines(self) -> tuple[int, ...]:
        """The memory layout and the inner engine that are used from now on."""
        return tuple(engine.settle() for engine in self.engine_settings)

    @property
    def settings(self) -> tuple[TunedSetting | Chunks | DynamicLoadBalancer, ...]:
        """All settings, which a TrainState names."""
        return (*self.engine_settings, self.chunks, *([self._balancer] if self._balancer else []))

    def start(self) -> None:
        """Begin an iteration."""
        self._start = time.perf_counter()

    def end(self, done: int) -> bool:
        """End an iteration; return whether this settled the last trial. A collective call.

        Args:
            done: the number of iterations done.
        """
        if self.settled:
            if self._balancer:
                self._balancer.end(done)
            return False
        synchronize(self._device)
        seconds = time.perf_counter() - self._start
        self._iterations += 1
        trying = next((engine for engine in self.engine_settings if not engine.settled), None)
        if trying is not None:  # it has a warm-up of its own
            trying.record(seconds)
        elif self._iterations > WARM_UP:
            self.chunks.record(seconds)
        return self.settled

    def finish(self) -> None:
        """Report at the end of training what has not been found out."""
        if not self.chunks.settled:
            LOG.warning(
                "Chunks: training has ended before the search: nothing is chosen, or kept in a file. A run that goes "
                "on searches anew. A smaller cgdp_param { interval range } makes it shorter; chunk_size needs none"
            )
