"""AllocatedSampler: the stream of a computing node that has some of the samples only (BPT-CNN, section 3.3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from bpt.data.sample_partition import Run
from bpt.data.sampler import Integers, SampleDraw, Sampler


class AllocatedSampler:
    """The stream of ``sampler``, but only of the samples that have been allocated: at first none.

    A *pass* goes once through these samples, in the order in which an epoch of ``sampler`` has them: the first pass in
    that of the epoch in which its stream starts, the second in that of the next, and so on. The order and what is done
    to a sample, which depends on the epoch, are thus those of one process; with all samples allocated the stream is
    that of ``sampler``. Passes follow one another for ever, so one may read ahead, and a batch may have the end of a
    pass and the start of the next, or many passes if the samples are fewer than a batch.

    What ``sampler`` skips is left out of the first pass.

    Attributes:
        size: samples of the whole source.
        count: samples that have been allocated.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.size = sampler.size
        self.count = 0
        self._sampler = sampler
        self._first, skipped = divmod(sampler.skip, sampler.size)  # epoch in which the stream starts
        self._epoch = self._first  # of the pass that was under way at the last allocation
        self._since = 0  # position of that allocation
        self._mine = np.zeros(sampler.size, np.bool_)
        self._gone = np.zeros(sampler.size, np.bool_)  # samples that stand before _since in that pass, or are skipped
        if skipped:
            self._gone[sampler.order(self._first)[:skipped]] = True
        self._begin = 0  # where that pass would have begun, had it come in one piece
        self._orders: dict[int, Integers] = {}

    def release(self, position: int, runs: Iterable[Run]) -> None:
        """From ``position`` of the stream on, the samples of ``runs`` do not belong to it any more.

        A pass that has begun, as batches reach over the end of the last one, goes on with what is left of the others.
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
        """From ``position`` of the stream on, the samples of ``runs`` belong to it, too.

        At the end of a pass the next one has all the samples. A pass that has begun, as batches reach over the end of
        the last one, goes on with what is left of all the samples: it has each of them once.

        Positions before it cannot be drawn any more. The first allocation holds from the start of the stream,
        wherever ``position`` is.

        Args:
            runs: positions in the order of the sampler's epoch 0, whatever it skips; none of them allocated before.
            begun: passes that count as done before the stream starts, for a node that joins later than others. Only
                with the first allocation.
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
        """Return what stands at ``[position, position + count)`` of the stream; epochs are those of ``sampler``."""
        assert position >= self._since and (self.count or not count), (position, count, self._since, self.count)
        epochs, samples = np.divmod(np.arange(position, position + count) - self._begin, max(self.count, 1))
        epochs += self._epoch
        for epoch in np.unique(epochs).tolist():
            now = epochs == epoch
            samples[now] = self._order(epoch)[samples[now]]
        return SampleDraw(epochs, samples)

    def passes(self, position: int) -> Fraction:
        """Return how many passes stand before ``position``: whole ones, and the part that there is of the next."""
        whole = Fraction(self._epoch - self._first)
        return whole + Fraction(position - self._begin, self.count) if self.count else whole

    def pass_end(self, position: int) -> int:
        """Return where the pass ends that the sample at ``position`` belongs to.

        Without samples ``position`` itself.
        """
        if not self.count:
            return position
        return position + self.count - (position - self._begin) % self.count

    def _changed(self) -> None:
        """Count the samples after a change of ``_mine``."""
        self.count = int(np.count_nonzero(self._mine))
        self._begin = self._since - int(np.count_nonzero(self._mine & self._gone))
        self._orders.clear()

    def _go_on(self, position: int) -> None:
        """Let ``position`` be that of the last allocation."""
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
