"""The workers of the outer layer as the main server knows them, and the progress of all of them together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from bpt.data.sample_partition import Run, size
from bpt.parallel.outer.outer_instructions import Order

ENOUGH = 0.25  # the part of a pass from which on its own speed counts, and not that of the pass before

STEADY = 0.4  # seconds of training from which on a time does not depend on what else the machine did at that moment


class WorkerState(Enum):
    """The state of a worker."""

    PARKED = auto()  # it has no samples yet
    TRAINING = auto()
    SUBMITTED = auto()  # it waits for an order
    STOPPED = auto()
    LOST = auto()


@dataclass
class WorkerRecord:
    """A worker as the main server knows it.

    Attributes:
        passes: passes that it has done.
        pending: samples that it will get with its next order.
        gives: samples that it loses with its next order.
        samples: samples that it has, without the pending ones and those that it gives.
        submitted: seconds and samples of its present pass that it has submitted.
        time: seconds of a sample in the last pass that it has finished; ``None``: it has not finished any.
        recent: seconds and samples of its last passes, as long as these are too short to be sure.
        steady: seconds of a sample in its last passes of STEADY seconds together; ``None``: it has not trained so long.
        order: its last order.
        reported: seconds and samples since its last order that it has reported.
        clock: seconds that it has computed and waited.
        computed: seconds that it has computed.
        end: passes after which it ends; ``None``: not settled yet.
    """

    state: WorkerState = WorkerState.PARKED
    passes: Fraction = Fraction(0)
    pending: list[Run] = field(default_factory=list)
    gives: list[Run] = field(default_factory=list)
    samples: int = 0
    submitted: tuple[float, int] = (0.0, 0)
    time: float | None = None
    recent: tuple[float, int] = (0.0, 0)
    steady: float | None = None
    reported: tuple[float, int] = (0.0, 0)
    order: Order | None = None
    clock: float = 0.0
    computed: float = 0.0
    end: Fraction | None = None

    @property
    def all_samples(self) -> int:
        """The number of its samples, with the pending ones."""
        return self.samples + size(self.pending)

    def end_pass(self, seconds: float, samples: int) -> None:
        """Note the seconds and the samples of a pass that it has finished."""
        if samples <= 0 or seconds <= 0:
            return
        self.time = seconds / samples
        if seconds < STEADY:  # together with those before it
            seconds, samples = seconds + self.recent[0], samples + self.recent[1]
        self.recent = seconds, samples
        if seconds >= STEADY:
            self.steady, self.recent = seconds / samples, (0.0, 0)

    def steady_seconds_per_sample(self) -> float | None:
        """Return ``steady``, or the time in this pass if it is as long already."""
        seconds, samples = (new + old for new, old in zip(self.reported, self.submitted, strict=True))
        if self.state is WorkerState.TRAINING and seconds >= STEADY and samples >= ENOUGH * self.samples > 0:
            return seconds / samples
        return self.steady

    def seconds_per_sample(self) -> float | None:
        """Return its newest seconds of a sample: those of this pass if enough of it is done or it is the first."""
        seconds, samples = (new + old for new, old in zip(self.reported, self.submitted, strict=True))
        is_known = seconds > 0 and samples > 0
        if self.state is WorkerState.TRAINING and is_known and (self.time is None or samples >= ENOUGH * self.samples):
            return seconds / samples
        return self.time


class WorkerTable:
    """The records of all workers, with sums that are updated, since counting 10,000 workers takes long.

    Args:
        number: the number of workers.
        total: K', the passes of each.

    Attributes:
        records: the record of each worker.
    """

    def __init__(self, number: int, total: Fraction) -> None:
        self.records = [WorkerRecord() for _ in range(number)]
        self._total = total
        self._states = Counter({WorkerState.PARKED: number})
        self._terms = [(0, 0, 0, 0)] * number
        self._sums = (0, 0, 0, 0)  # samples; samples by passes; samples of workers at their end; workers with samples

    def count(self, *states: WorkerState) -> int:
        """Return the number of workers in one of ``states``."""
        return sum(self._states[state] for state in states)

    def workers(self, *states: WorkerState) -> tuple[int, ...]:
        """Return the workers in one of ``states``."""
        return tuple(worker for worker, record in enumerate(self.records) if record.state in states)

    def set_state(self, worker: int, state: WorkerState) -> None:
        """Change the state of a worker."""
        self._states[self.records[worker].state] -= 1
        self._states[state] += 1
        self.records[worker].state = state

    def update(self, worker: int) -> None:
        """Update the sums after a change of a worker's samples, passes or end.

        Samples by passes are whole numbers: sums of the fractions of thousands of workers would have as many digits.
        """
        record = self.records[worker]
        samples, has_ended = record.all_samples, record.passes >= (record.end or self._total)
        passes = min(record.passes, self._total) if record.end else record.passes  # some do more than K' passes
        by_passes = 0 if has_ended else samples * passes.numerator // passes.denominator
        now = samples, by_passes, samples if has_ended else 0, int(samples > 0)
        before, self._terms[worker] = self._terms[worker], now
        a, b, c, d = (total - old + new for total, old, new in zip(self._sums, before, now, strict=True))
        self._sums = a, b, c, d

    @property
    def progress(self) -> Fraction:
        """The part of all training that is done (passes by samples), from 0 to 1."""
        samples, by_passes, ended, _ = self._sums
        # In whole numbers: (by_passes + ended * total) / (samples * total).
        total, parts = self._total.numerator, self._total.denominator
        return Fraction(by_passes * parts + ended * total, samples * total) if samples else Fraction(0)

    @property
    def with_samples(self) -> int:
        """The number of workers that have samples."""
        return self._sums[3]

    def share(self, worker: int) -> float:
        """Return a worker's samples relative to the mean of all workers; 1 if there are none."""
        samples, _, _, holders = self._sums
        return self.records[worker].samples * holders / samples if samples else 1.0
