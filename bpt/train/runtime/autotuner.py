"""Autotuner: chooses memory layout, inner engine, algorithms and chunks of gradients in a run's first iterations."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import torch

from bpt.parallel.balance.dynamic_balancer import DynamicLoadBalancer
from bpt.parallel.cgdp.tuner import Chunks
from bpt.system.device import synchronize
from bpt.train.runtime.algorithm_setting import AlgorithmSetting
from bpt.train.runtime.tuned_settings import TunedSetting

LOG = logging.getLogger("bpt")

WARM_UP = 2  # iterations at the start of a run that do not count: they start threads, and prepare memory and kernels


class Autotuner:
    """Times iterations until all choices are final; every trial is an iteration of training, so no work is lost.

    Args:
        engine_settings: the memory layout, then the inner engine; the second is tried with the best of the first.
        chunks: the chunks of gradients, which are tried last.
        algorithms: the algorithms of kernels, which are tried after the engines; ``None``: nothing is tried.
        balancer: divides batches again when all choices are final; ``None``: no one does.

    Attributes:
        engine_settings, chunks, algorithms: the arguments of these names.
    """

    def __init__(
        self,
        engine_settings: Sequence[TunedSetting],
        chunks: Chunks,
        device: torch.device,
        balancer: DynamicLoadBalancer | None = None,
        algorithms: AlgorithmSetting | None = None,
    ) -> None:
        self.engine_settings = engine_settings
        self.chunks = chunks
        self.algorithms = algorithms
        self._device = device
        self._balancer = balancer
        self._start = 0.0
        self._iterations = 0

    @property
    def settled(self) -> bool:
        """Whether all trials are finished."""
        return all(setting.settled for setting in self.kernel_settings) and self.chunks.settled

    @property
    def kernel_settings(self) -> tuple[TunedSetting | AlgorithmSetting, ...]:
        """The settings by which passes round differently, in the order in which they are tried."""
        return (*self.engine_settings, *([self.algorithms] if self.algorithms else []))

    @property
    def engines(self) -> tuple[int, ...]:
        """The current memory layout and inner engine."""
        return tuple(engine.settle() for engine in self.engine_settings)

    @property
    def settings(self) -> tuple[TunedSetting | AlgorithmSetting | Chunks | DynamicLoadBalancer, ...]:
        """All settings with a choice that a TrainState stores."""
        return (*self.kernel_settings, self.chunks, *([self._balancer] if self._balancer else []))

    def start(self) -> None:
        """Begin an iteration."""
        self._start = time.perf_counter()

    def end(self, done: int) -> bool:
        """End an iteration; return whether this finished the last trial. A collective call.

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
        trying = next((setting for setting in self.kernel_settings if not setting.settled), None)
        if trying is not None:  # each setting has its own warm-up
            trying.record(seconds)
        elif self._iterations > WARM_UP:
            self.chunks.record(seconds)
        return self.settled

    def finish(self) -> None:
        """Report unfinished trials at the end of training."""
        if not self.chunks.settled:
            LOG.warning(
                "Chunks: training has ended before the search: nothing is chosen, or kept in a file. A run that goes "
                "on searches anew. A smaller cgdp_param { interval range } makes it shorter; chunk_size needs none"
            )
