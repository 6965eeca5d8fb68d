"""AdaptiveBatch: ``balance_param { batch { rule: NOISE_SCALE } }`` in a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from bpt.engine.instructions import ExchangeGradients, Instruction
from bpt.engine.optim.gradients import l2_norm
from bpt.graph.share import Share
from bpt.parallel.balance.noise_scale import NoiseScale
from bpt.parallel.exchange import Exchange
from bpt.system.comm.base import Communicator

LOG = logging.getLogger("bpt")


class AdaptiveBatch:
    """Measures the gradients of all ranks before and after their sum, for the passes of the next iterations.

    Args:
        scale: decides.
        exchange: sums the gradients.
        world: all ranks, each with samples of its own.
        shares: returns the share of each rank of a pass.
    """

    def __init__(
        self, scale: NoiseScale, exchange: Exchange, world: Communicator, shares: Callable[[], Sequence[Share]]
    ) -> None:
        self.scale = scale
        self._exchange = exchange
        self._world = world
        self._shares = shares
        self._own = 0.0  # squared norm of the gradients of this rank, which it has handed over for their sum

    def note(self, iteration: int, instruction: Instruction) -> None:
        """Measure the gradients that ``instruction`` is about to sum."""
        if isinstance(instruction, ExchangeGradients):
            self._own += self._measured([instruction.segment])

    def end(self, iteration: int, passes: int, loss_scale: float = 1.0) -> int:
        """Measure the sums at the end of an iteration; return the passes of the next one. A collective call.

        Args:
            loss_scale: the factor of the gradients, which have not been divided by it yet.
        """
        numbers = np.zeros(self._world.size + 1)
        numbers[self._world.rank] = self._own
        if self._world.rank == 0:  # norms are rounded in other ways on other machines
            numbers[-1] = self._measured(range(len(self._exchange.buckets)))
        self._own = 0.0
        self._world.Allreduce(numbers)
        numbers /= loss_scale**2
        counts = [share.count for share in self._shares()]
        total = sum(counts)
        # A rank's gradients are its summands of the mean over a pass, added up over the passes.
        norms = [
            size * (total / (count * passes)) ** 2 if count else 0.0
            for count, size in zip(counts, numbers.tolist(), strict=False)
        ]
        self.scale.add([count * passes for count in counts], norms, float(numbers[-1]) / passes**2)
        if self.scale.passes != passes:
            LOG.info(
                "Batch: from iteration %d on, %d samples in %d passes instead of %d; the noise scale is %.4g samples",
                iteration + 1, self.scale.passes * total, self.scale.passes, passes, self.scale.samples,
            )  # fmt: skip
        return self.scale.passes

    def _measured(self, segments: Sequence[int]) -> float:
        """Return the squared norm of the gradients of segments."""
        found: list[Tensor] = [
            value.grad
            for segment in segments
            for bucket in self._exchange.buckets[segment]
            for value in bucket.parameters
            if value.grad is not None
        ]
        return l2_norm(found) ** 2
