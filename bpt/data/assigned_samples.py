"""AllocatedSampler: the stream of a computing node that has only some of the samples (BPT-CNN, section 3.3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from bpt.data.sample_partition import Run
from bpt.data.sampler import Integers, SampleDraw, Sampler


class AllocatedSampler:
    """The stream of ``sampler`` restricted to the allocated samples; at first there are none.

    A *pass* contains each allocated sample once, in the order of an epoch of ``sampler``: the first pass in the order
    of the epoch in which the stream of ``sampler`` starts, the second in that of the next epoch, and so on. So the
    order and the transforms of samples, which depend on the epoch, are those of a single process. If all samples are
    allocated, the stream is that of ``sampler``. Passes follow one another without end, so prefetching is possible, and
    a batch may contain the end of a pass and the start of the next, or many passes of few samples.

    The first pass leaves out the samples that ``sampler`` skips.

    Attributes:
        size: number of samples of the whole source.
        count: number of allocated samples.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.size = sampler.size
        self.count = 0
        self._sampler = sampler
        self._first, skipped = divmod(sampler.skip, sampler.size)  # epoch in which the stream starts
        self._epoch = self._first  # epoch of the pass that was under way at the last allocation
        self._since = 0  # position of the last allocation
        self._mine = np.zeros(sampler.size, np.bool_)
        self._gone = np.zeros(sampler.size, np.bool_)  # samples before _since in that pass, and skipped ones
        if skipped:
            self._gone[sampler.order(self._first)[:skipped]] = True
        self._begin = 0  # position at which that pass would have begun if it had not been reallocated
        self._orders: dict[int, Integers] = {}

    def release(self, position: int, runs: Iterable[Run]) -> None:
        """From ``position`` of the stream on, the samples of ``runs`` do not belong to it any more.

        A pass that has begun, as batches reach over the end of the last one, continues with the rest of the others.
        Positions before it cannot be drawn any more.

        Args:
            runs: as for ``allocate``; all of them allocated before, and not all that are.
        """
        if not (runs := tuple(runs)):
            return
        self._go_on(position)
        order = self._sampler.order(0)
        for start, stop in runs:
            assert self._mine[order[start:stop]].all(), f"samples of {start, stop} are not all allocated"
            self._mine[order[start:stop]] = False
        self._changed()
        assert self.count, "a stream has samples"

    def allocate(self, position: int, runs: Iterable[Run], begun: int = 0) -> None:
        """Add the samples of ``runs`` to the stream, from ``position`` on.

        If ``position`` is the end of a pass, the next pass has all the samples. If a pass has begun already, because
        batches reach over the end of a pass, it continues with the rest of all the samples and has each of them once.

        Earlier positions can no longer be drawn. The first allocation holds from the start of the stream, for any
        ``position``.

        Args:
            runs: positions in the order of the sampler's epoch 0, regardless of skipped samples; none of them has been
                allocated before.
            begun: passes that count as done before the stream starts, for a node that joins later than others. Only
                the first allocation may have it.
        """
        assert not (begun and self.count), "only a stream that has not begun can begin later"
        runs = tuple(runs)
        if not runs:
            return
        if self.count:
            self._go_on(position)
        if begun:
            self._epoch = self._first + begun
            self._gone[:] = False
        order = self._sampler.order(0)
        for start, stop in runs:
            assert 0 <= start < stop <= self.size, (start, stop, self.size)
            assert not self._mine[order[start:stop]].any(), f"samples of {start, stop} are allocated already"
            self._mine[order[start:stop]] = True
        self._changed()

    def indices(self, position: int, count: int) -> SampleDraw:
        """Return the samples at ``[position, position + count)`` of the stream, with the epochs of ``sampler``."""
        assert position >= self._since and (self.count or not count), (position, count, self._since, self.count)
        epochs, samples = np.divmod(np.arange(position, position + count) - self._begin, max(self.count, 1))
        epochs += self._epoch
        for epoch in np.unique(epochs).tolist():
            now = epochs == epoch
            samples[now] = self._order(epoch)[samples[now]]
        return SampleDraw(epochs, samples)

    def passes(self, position: int) -> Fraction:
        """Return the number of passes before ``position``, including the fraction of the current one."""
        whole = Fraction(self._epoch - self._first)
        return whole + Fraction(position - self._begin, self.count) if self.count else whole

    def pass_end(self, position: int) -> int:
        """Return the end of the pass of the sample at ``position``; without samples, return ``position``."""
        if not self.count:
            return position
        return position + self.count - (position - self._begin) % self.count

    def _changed(self) -> None:
        """Count the samples after a change of ``_mine``."""
        self.count = int(np.count_nonzero(self._mine))
        self._begin = self._since - int(np.count_nonzero(self._mine & self._gone))
        self._orders.clear()

    def _go_on(self, position: int) -> None:
        """Record ``position`` as that of the last allocation."""
        assert position >= self._since, (position, self._since)
        passes, drawn = divmod(position - self._begin, self.count)
        samples = self._order(self._epoch + passes)[:drawn]
        if passes:
            self._gone[:] = False
        self._gone[samples] = True
        self._epoch += passes
        self._since = position

    def _order(self, epoch: int) -> Integers:
        if epoch not in self._orders:
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            order = self._sampler.order(epoch, np.flatnonzero(self._mine))
            if epoch == self._epoch:
                gone = self._gone[order]
                order = np.concatenate((order[gone], order[~gone]))
            self._orders[epoch] = order
        return self._orders[epoch]
