"""Chunks: layers whose gradients are sent to the host together (CGDP, section 4), and the search for good ones.

Only layers with trained parameters count. As in the paper, layer l is the top one, where backward begins, and chunks
are listed in the order of backward: the first holds the top layers, the last ends with layer 1.

The search (section 4.2, Fig. 4) runs while the net trains. Every trial is ``interval`` iterations of training like
any others; nothing is computed twice. A search sees times and nothing else. All ranks must record the same times (say,
those of the slowest one), so that they decide alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median


def chunks(layers: int, size: int) -> tuple[int, ...]:
    """Return the lengths of the chunks from layer l down to layer 1 (CGDP, section 4.2); their sum is ``layers``.

    If ``size`` divides ``layers``, there are ``layers / size - 1`` chunks of ``size`` and then ``size`` chunks of one
    layer; otherwise ``layers // size`` chunks of ``size``, and the rest as chunks of one layer. The last layers
    stand alone so that little is left to exchange when backward ends. By this rule size l gives single layers, just
    as size 1 does.

    Beyond the paper, a size larger than ``layers`` gives one chunk of all layers. (The rule would give single layers
    once more, and no size at all would give the whole net.) No layers give no chunks.
    """
    assert layers >= 0 and size >= 1, (layers, size)
    if size > layers > 0:
        return (layers,)
    whole, rest = divmod(layers, size)
    if rest == 0 and whole:
        whole, rest = whole - 1, size
    return (size,) * whole + (1,) * rest


def describe(lengths: Sequence[int]) -> str:
    """Return a cut in a few characters: ``14x10 12x1`` is 14 chunks of 10 layers, and then 12 of one."""
    return " ".join(f"{len(list(alike))}x{length}" for length, alike in groupby(lengths)) or "none"


MARGIN = 0.98  # a challenger must be faster than this part of the proposal's time


@dataclass(frozen=True)
class Trial:
    """A cut that was tried for one interval.

    Attributes:
        size: chunk size of the paper's rule; None if the cut was made in another way.
        seconds: time of the ``interval`` iterations.
        lengths: the chunks, from the top layer down.
    """

    size: int | None
    seconds: float
    lengths: tuple[int, ...]

    def __str__(self) -> str:
        """Return the trial as a log shows it, without the time: ``chunk size 9``, or ``chunks 14x10 12x1``."""
        return f"chunks {describe(self.lengths)}" if self.size is None else f"chunk size {self.size}"


class CutSearch(ABC):
    """Tries cuts into chunks, an interval each, and settles on one.

    Args:
        interval: iterations of a trial.
        settled: there is only one cut.

    Attributes:
        settled: the search has ended.
        trials: those that have ended, in order.
    """

    def __init__(self, interval: int, settled: bool) -> None:
        self.interval = interval
        self.settled = settled
        self.trials: list[Trial] = []
        self._times: list[float] = []

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """The cut to train with now, from the top layer down."""

    def record(self, seconds: float) -> bool:
        """Note how long an iteration took; return whether this ended a trial, after which ``lengths`` may change.

        When the search has settled, times are ignored.
        """
        if self.settled:
            return False
        self._times.append(seconds)
        if len(self._times) < self.interval:
            return False
        times, self._times = self._times, []
        self._end_trial(times)
        return True

    @abstractmethod
    def _end_trial(self, times: Sequence[float]) -> None:
        """Note a trial whose iterations took ``times``, and start the next one or settle."""


class ChunkSearch(CutSearch):
    """The run-time algorithm of Fig. 4: tries rising chunk sizes and keeps the one with the least time.

    After each interval: if its time ``lapse`` is below ``lapse_min``, its size becomes ``best_chunk``; the search
    continues only if ``chunk < best_chunk + step * range``; then ``chunk := (chunk < step) ? chunk + 1 : chunk +
    step``. The order is that of the paper's example in section 5.2.6: with step 10, range 5 and the best size 9 at
    iteration 90, the condition fails at iteration 150, after size 60.

    Beyond the paper, a search ends as soon as a size above ``layers`` has been tried: all larger ones give the same
    single chunk. A net of less than two layers has one cut only, so there is nothing to search.

    Args:
        layers: number l of layers with trained parameters.
        step: sizes grow by 1 up to it, and then by it.
        range_: how many times ``step`` the search continues behind the best size (the paper's ``range``).
        interval: iterations of a trial.

    Attributes:
        size: the chunk size in use (the paper's ``chunk``).
        best: ``best_chunk``, the best size so far; when the search has settled, it is in use.
    """

    def __init__(self, layers: int, step: int = 10, range_: int = 5, interval: int = 10) -> None:
        assert layers >= 0 and step >= 1 and range_ >= 0 and interval >= 1, (layers, step, range_, interval)
        super().__init__(interval, settled=layers < 2)
        self.layers = layers
        self.step = step
        self.range = range_
        self.size = 1
        self.best = 1
        self._lapse_min = math.inf

    @property
    def lengths(self) -> tuple[int, ...]:
        """The cut of the size in use."""
        return chunks(self.layers, self.size)

    def _end_trial(self, times: Sequence[float]) -> None:
        lapse = math.fsum(times)
        self.trials.append(Trial(self.size, lapse, self.lengths))
        if lapse < self._lapse_min:
            self.best, self._lapse_min = self.size, lapse
        if self.size < self.best + self.step * self.range and self.size <= self.layers:
            self.size = self.size + 1 if self.size < self.step else self.size + self.step
        else:
            self.size = self.best
            self.settled = True


class CandidateSearch(CutSearch):
    """Tries given cuts in turn, an interval each, and keeps the fastest; this goes beyond the paper.

    The first candidate is the cost model's proposal, and the others only refine it: one of them is taken only if it
    is faster by 2 % (``MARGIN``). The candidates' true times are close together, and means of few iterations differ
    by about as much from noise alone; without a margin, the luckiest of several would win, not the best. For the same
    reason a trial's time is ``interval`` times its *median* iteration: the first one with new chunks, or one that
    another program disturbed, does not count.

    Args:
        candidates: cuts into chunks, each from the top layer down; all of the same layers. One alone is settled at
            once.
        interval: iterations of a trial.
    """

    def __init__(self, candidates: Sequence[tuple[int, ...]], interval: int = 10) -> None:
        assert candidates and interval >= 1, (candidates, interval)
        assert len({sum(lengths) for lengths in candidates}) == 1, candidates
        super().__init__(interval, settled=len(candidates) == 1)
        self.candidates = tuple(candidates)
        self._lengths = self.candidates[0]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The candidate in use."""
        return self._lengths

    def _end_trial(self, times: Sequence[float]) -> None:
        self.trials.append(Trial(None, self.interval * median(times), self._lengths))
        self.settled = len(self.trials) == len(self.candidates)
        self._lengths = self._best() if self.settled else self.candidates[len(self.trials)]

    def _best(self) -> tuple[int, ...]:
        proposal, *challengers = self.trials
        fastest = min(challengers, key=lambda trial: trial.seconds)
        return (fastest if fastest.seconds < MARGIN * proposal.seconds else proposal).lengths
