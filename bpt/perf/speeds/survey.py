"""Measures how fast each rank trains batches of different sizes (StaticLB, §3).

All ranks measure at the same time, each at a size of its own, so that those on one machine disturb each other as they
will in training. A time is the mean over runs of iterations. Frequent interruptions, such as a quota that stops the
process ten times a second, belong to a rank's speed and are averaged in; a single interruption is not.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Protocol

from bpt.base.errors import UserError
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.parallel.balance.batch_shares import Static
from bpt.parallel.balance.divided_net import Division
from bpt.parallel.balance.profile import RankSpeed
from bpt.parallel.balance.speed import Estimate, MemoryExtrapolation, estimate_runs, ladder
from bpt.system.comm.base import Communicator

LOG = logging.getLogger("bpt")

WARM_UP = 2  # iterations that do not count: memory and kernels are prepared, data are read ahead
FEWEST = 3  # runs at least, however long they take
REFINEMENTS = 5  # corrections of the division at most
LATEST = 2  # multiples of SurveyLimits.whole after which no correction begins
SHOWN = 8  # ranks in a log line
REMARKABLE = 2  # a time is remarked on if its uncertainty is more than this multiple of the limit
TOLERANCE = 0.03  # relative difference allowed between a measured and an interpolated time


@dataclass(frozen=True)
class SurveyLimits:
    """The limits within which a size is measured well enough.

    Attributes:
        precision: the half-width of the 95 % confidence interval, relative to the time.
        run: seconds of a run of iterations at least; its mean is one repeat.
        repeats: the number of runs that a confidence interval needs.
        seconds: a size is not measured longer, once it has ``FEWEST`` runs; the log says how well it is known.
        whole: after this time for all sizes together, ``repeats`` runs are enough however uneven they are; after
            LATEST times as long the division is not corrected any more. Small nets end before that.
    """

    precision: float = 0.025
    run: float = 0.2
    repeats: int = 8
    seconds: float = 10.0
    whole: float = 7.0

    @property
    def rough(self) -> SurveyLimits:
        """The limits for sizes that only lead to the shares."""
        return replace(self, precision=2 * self.precision, repeats=self.repeats // 2, seconds=self.seconds / 10)


class MeasuredWork(Protocol):
    """The work that is measured, such as StepBenchmark."""

    @property
    def blob_bytes(self) -> tuple[int, int]: ...
    @property
    def peak(self) -> int: ...
    @property
    def room(self) -> int: ...
    def resize(self, samples: int) -> None: ...
    def settle(self, choice: MemoryFormatChoice) -> None: ...
    def run(self) -> float: ...


def measure_speed(
    work: MeasuredWork,
    engine: int,
    batch: int,
    comm: Communicator,
    limits: SurveyLimits | None = None,
    division: Division | None = None,
) -> RankSpeed:
    """Measure this rank at the sizes that may become its share of ``batch``; a collective call.

    Sizes are doubled from 1 to the even share. A rank continues to double its size, up to ``batch``, while it is faster
    than the slowest rank with its even share: no good division gives it more. Then the best known division is measured
    itself, and corrected, until the times are as predicted. So a rough knowledge of the sizes between is enough. A rank
    that has nothing left to measure repeats its largest size meanwhile, so that the others are disturbed as in
    training. A size that may not fit into memory is never tried.

    Args:
        engine: the solver's memory layout; AUTO is settled as in training, by the slowest rank.
        batch: samples of all ranks together.
        division: how the ranks divide the net and the batch; by default all share the batch.
    """
    survey = _Survey(work, engine, batch, comm, limits or SurveyLimits(), division or Division(comm.size))
    survey.climb()
    survey.climb_on()
    survey.refine()
    return survey.result


class _Survey:
    """A rank's part of the measurement. All methods without an underscore are collective."""

    def __init__(
        self, work: MeasuredWork, engine: int, batch: int, comm: Communicator, limits: SurveyLimits, division: Division
    ) -> None:
        self._work = work
        self._engine = engine
        self._batch = batch
        self._comm = comm
        self._limits = limits
        self._division = division
        self._shares = len(division.share_ranks)
        self._points: dict[int, Estimate] = {}
        largest_blob, all_blobs = work.blob_bytes
        self._memory = MemoryExtrapolation(
            guess=3 * all_blobs, least=largest_blob
        )  # blobs, their diffs, what kernels need
        self._room = work.room
        self._has_enough = False  # whether no larger size is worth a measurement
        self._layout = MemoryFormatChoice(engine)
        self._settled = False  # whether larger sizes keep that choice
        self._spent = 0.0

    @property
    def result(self) -> RankSpeed:
        return RankSpeed(dict(sorted(self._points.items())), self._memory.cap(self._room))

    def climb(self) -> None:
        """Measure from 1 to the even share."""
        *smaller, even = ladder(self._batch, self._shares)
        for size in (*smaller, even):
            limits = self._limits if size == even else self._limits.rough
            self._step(size if self._fits(size) else self._memory.largest, limits)
        self._settled = True

    def climb_on(self) -> None:
        """Measure larger sizes that may become this rank's share."""
        even = ladder(self._batch, self._shares)[-1]
        times = self._comm.allgather(self._points[even].seconds if even in self._points else float("inf"))
        while any(sizes := self._comm.allgather(self._next(max(times)))):
            self._step(sizes[self._comm.rank] or self._memory.largest, self._limits.rough)

    def _next(self, slowest: float) -> int:
        """Return the next larger size that is worth a measurement, or 0; after a 0 always 0."""
        largest = self._memory.largest
        size = min(2 * largest, self._batch)
        wanted = largest < self._batch and self._points[largest].seconds < slowest and self._fits(size)
        self._has_enough |= not wanted
        return 0 if self._has_enough else size

    def refine(self) -> None:
        """Measure and correct the division until its times are as predicted."""
        for _ in range(REFINEMENTS if self._comm.size > 1 else 0):
            functions = [speed.function for speed in self._comm.allgather(self.result)]
            split = sum(self._division.split)
            balance = Static(self._division.functions(functions), group=self._division.group, split=split)
            try:
                shares = balance.shares(self._batch, self._shares)
            except UserError as error:
                self._log("Profile: %s", error)
                return
            own = functions[self._comm.rank]
            mine = shares[self._division.share_of(self._comm.rank)].count
            mine = min(
                mine, mine if own.cap is None else own.cap
            )  # a stage may have a larger share than fits with the whole net
            predicted = own.seconds(mine)
            self._step(mine, self._limits)
            found = self._points[mine] if mine else None
            missed = abs(found.seconds / predicted - 1) - max(TOLERANCE, found.relative) if found else 0.0
            seen = self._comm.allgather((missed, self._spent))
            if max(missed for missed, _ in seen) <= 0 or max(spent for _, spent in seen) >= LATEST * self._limits.whole:
                return

    def _fits(self, size: int) -> bool:
        return size <= max(1, self._memory.cap(self._room))

    def _step(self, size: int, limits: SurveyLimits) -> None:
        """Measure one size on each rank, until all are within ``limits``; 0: this rank measures nothing."""
        self._comm.Barrier()
        if not self._settled:
            self._layout = MemoryFormatChoice(self._engine)
        self._work.resize(size)
        self._work.settle(self._layout)
        slowest = max(self._comm.allgather(max(self._work.run() for _ in range(WARM_UP))))
        self._settled |= slowest >= self._limits.run  # a net this slow does not try layouts at every size
        runs = self._repeat(size, slowest, limits)
        found = estimate_runs(runs.means) if size else None
        if found:
            known = self._points.get(size, found)
            self._points[size] = min(found, known, key=lambda point: point.half_width)
            self._memory.note(size, self._work.peak)
        self._room = self._work.room
        self._log_times(size, found, runs.spent, limits)

    def _repeat(self, size: int, slowest: float, limits: SurveyLimits) -> _Runs:
        """Run iterations until all ranks know their time well enough.

        Rounds are equally long on all ranks, and a rank that has enough continues, so that all are busy all the time.
        """
        runs = _Runs(self._work, limits.run)
        seconds = max(limits.repeats * limits.run, FEWEST * slowest)
        done = False
        while not done:
            if size:
                runs.extend(seconds)
            seconds = max(limits.repeats * limits.run / 2, slowest)
            late = self._spent + runs.spent >= limits.whole
            done = all(self._comm.allgather(not size or runs.are_enough(limits, late)))
        self._spent += runs.spent
        return runs

    def _log_times(self, size: int, found: Estimate | None, seconds: float, limits: SurveyLimits) -> None:
        """Let rank 0 log the times of all ranks."""
        seen = self._comm.allgather((size, found, seconds))
        cells = [f"rank {rank}: {samples} in {point}" for rank, (samples, point, _) in enumerate(seen) if point]
        more = f" and {len(cells) - SHOWN} more ranks" if len(cells) > SHOWN else ""
        self._log("Profile: samples in an iteration's time, %s%s", "; ".join(cells[:SHOWN]), more)
        for rank, (samples, point, spent) in enumerate(seen):
            if point and point.relative > REMARKABLE * limits.precision:
                self._log(
                    "Profile: rank %d: after %.3g s the time of %d samples is known to ± %.1f %% only; is the machine "
                    "busy with something else?", rank, spent, samples, 100 * point.relative,
                )  # fmt: skip

    def _log(self, message: str, *arguments: object) -> None:
        if self._comm.rank == 0:
            LOG.info(message, *arguments)


class _Runs:
    """Runs of equally many iterations, and their means.

    Args:
        seconds: the seconds of the first run at least.
    """

    def __init__(self, work: MeasuredWork, seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._iterations = 0  # in a run
        self.means: list[float] = []
        self.spent = 0.0

    def are_enough(self, limits: SurveyLimits, late: bool) -> bool:
        """Return whether ``limits`` are met, or the runs must do because it is ``late``."""
        count = len(self.means)
        if late and count >= limits.repeats:
            return True
        precise = count >= limits.repeats and estimate_runs(self.means).relative <= limits.precision
        return precise or (count >= FEWEST and self.spent >= limits.seconds)

    def extend(self, seconds: float) -> None:
        """Add runs for ``seconds`` or a little longer."""
        end = self.spent + seconds
        while self.spent < end:
            run = self._first() if not self.means else sum(self._work.run() for _ in range(self._iterations))
            self.means.append(run / self._iterations)
            self.spent += run

    def _first(self) -> float:
        run = 0.0
        while run < self._seconds:
            run += self._work.run()
            self._iterations += 1
        return run
