"""Measures how fast each rank trains batches of different sizes (StaticLB, §3).

All ranks measure at the same time, each at its own size, so that ranks of one machine disturb each other as in
training. A time is the mean over runs of iterations. Frequent interruptions, such as a quota that stops the process ten
times a second, are part of a rank's speed and of the mean; a single interruption is not.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Protocol

from bpt.base.errors import UserError
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.parallel.balance.batch_shares import Static
from bpt.parallel.balance.divided_net import Division
from bpt.parallel.balance.profile import RankSpeed
from bpt.parallel.balance.speed import Estimate, MemoryExtrapolation, estimate_runs, ladder
from bpt.system.comm.base import Communicator

LOG = logging.getLogger("bpt")

WARM_UP = 2  # iterations that do not count: they prepare memory and kernels, and fill the prefetch queues
FEWEST = 3  # smallest number of runs, however long they take
REFINEMENTS = 5  # largest number of corrections of the division
LATEST = 2  # multiple of SurveyLimits.whole after which no correction begins
SHOWN = 8  # ranks in a log line
REMARKABLE = 2  # multiple of the allowed uncertainty above which the log warns of a time
TOLERANCE = 0.03  # relative difference allowed between a measured and an interpolated time


@dataclass(frozen=True)
class SurveyLimits:
    """The limits within which a size is measured well enough.

    Attributes:
        precision: the half-width of the 95 % confidence interval, relative to the time.
        run: the shortest run of iterations in seconds; its mean is one repeat.
        repeats: the number of runs that a confidence interval needs.
        seconds: the longest measurement of a size that has ``FEWEST`` runs; the log reports its uncertainty.
        whole: seconds for all sizes together after which ``repeats`` runs are enough, however uneven they are. After
            LATEST times as long the division is no longer corrected. Small nets end before that.
    """

    precision: float = 0.025
    run: float = 0.2
    repeats: int = 8
    seconds: float = 10.0
    whole: float = 7.0

    @property
    def rough(self) -> SurveyLimits:
        """The looser limits for sizes that are measured only to find the shares."""
        return replace(self, precision=2 * self.precision, repeats=self.repeats // 2, seconds=self.seconds / 10)


class MeasuredWork(Protocol):
    """The work to measure, such as StepBenchmark."""

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

    Sizes double from 1 to the even share. A rank continues to double its size, up to ``batch``, while it is faster than
    the slowest rank with its even share; no good division would give it more. Then the ranks measure the best known
    division itself, and correct it until the times are as predicted, so sizes between may be known roughly. A rank with
    nothing left to measure repeats its largest size, to disturb the others as in training. A size that may not fit into
    memory is never tried.

    Args:
        engine: the solver's memory layout; AUTO is chosen as in training, by the slowest rank.
        batch: samples of all ranks together.
        division: how the ranks divide the net and the batch; by default all share the batch.
    """
    survey = _Survey(
        work, engine, batch, comm, limits or SurveyLimits(), division or Division(ReplicaLayout.regular(comm.size))
    )
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
        self._settled = False  # whether larger sizes keep the chosen memory layout
        self._spent = 0.0

    @property
    def result(self) -> RankSpeed:
        return RankSpeed(dict(sorted(self._points.items())), self._memory.cap(self._room))

    def climb(self) -> None:
        """Measure sizes from 1 to the even share."""
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
        """Return the next larger size that is worth a measurement, or 0 if there is none; then it stays 0."""
        largest = self._memory.largest
        size = min(2 * largest, self._batch)
        wanted = largest < self._batch and self._points[largest].seconds < slowest and self._fits(size)
        self._has_enough |= not wanted
        return 0 if self._has_enough else size

    def refine(self) -> None:
        """Measure and correct the division until its times are as predicted."""
        for _ in range(REFINEMENTS if self._comm.size > 1 else 0):
            functions = [speed.function for speed in self._comm.allgather(self.result)]
            split = self._division.split_part
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
        """Measure one size on each rank, until all are within ``limits``; with size 0 this rank measures nothing."""
        self._comm.Barrier()
        if not self._settled:
            self._layout = MemoryFormatChoice(self._engine)
        self._work.resize(size)
        self._work.settle(self._layout)
        slowest = max(self._comm.allgather(max(self._work.run() for _ in range(WARM_UP))))
        self._settled |= slowest >= self._limits.run  # a slow net does not try layouts at every size
        runs = self._repeat(size, slowest, limits)
        found = estimate_runs(runs.means) if size else None
        if found:
            known = self._points.get(size, found)
            self._points[size] = min(found, known, key=lambda point: point.half_width)
            self._memory.note(size, self._work.peak)
        self._room = self._work.room
        self._log_times(size, found, runs.spent, limits)

    def _repeat(self, size: int, slowest: float, limits: SurveyLimits) -> _Runs:
        """Run iterations until the times of all ranks are certain enough.

        Rounds are equally long on all ranks, and a rank that has enough continues, so that all ranks stay busy.
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
        """Log the times of all ranks on rank 0."""
        seen = self._comm.allgather((size, found, seconds))
        cells = [f"rank {rank}: {samples} in {point}" for rank, (samples, point, _) in enumerate(seen) if point]
        more = f" and {len(cells) - SHOWN} more ranks" if len(cells) > SHOWN else ""
        self._log("Profile: samples in an iteration's time, %s%s", "; ".join(cells[:SHOWN]), more)
        for rank, (samples, point, spent) in enumerate(seen):
            if point and point.relative > REMARKABLE * limits.precision:
                self._log(
                    "Profile: rank %d: after %.3g s the time of %d samples is known only to ± %.1f %%; do other "
                    "programs run on the machine?", rank, spent, samples, 100 * point.relative,
                )  # fmt: skip

    def _log(self, message: str, *arguments: object) -> None:
        if self._comm.rank == 0:
            LOG.info(message, *arguments)


class _Runs:
    """Runs with the same number of iterations, and the mean of each.

    Args:
        seconds: the shortest first run in seconds.
    """

    def __init__(self, work: MeasuredWork, seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._iterations = 0  # iterations of a run
        self.means: list[float] = []
        self.spent = 0.0

    def are_enough(self, limits: SurveyLimits, late: bool) -> bool:
        """Return whether ``limits`` are met, or the runs must suffice because it is ``late``."""
        count = len(self.means)
        if late and count >= limits.repeats:
            return True
        precise = count >= limits.repeats and estimate_runs(self.means).relative <= limits.precision
        return precise or (count >= FEWEST and self.spent >= limits.seconds)

    def extend(self, seconds: float) -> None:
        """Add runs until ``seconds`` have passed."""
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
