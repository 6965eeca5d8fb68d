"""A simulated worker of the outer layer: its samples, its seconds, and its speed, which may change."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from bpt.data.sample_partition import size
from bpt.parallel.cluster.cluster import NEVER, Node
from bpt.parallel.discrete_event import Process
from bpt.parallel.outer.outer_instructions import Order, SubmissionReport

LEAST = 0.01  # of what an order takes in the mean; noise makes it no shorter


class SpeedProfile:
    """The speed of a node over time, relative to its start; work is measured in seconds at the start's speed.

    Args:
        changes: (time, factor), by rising time; of several at one time the last counts.
    """

    def __init__(self, changes: Sequence[tuple[float, float]] = ()) -> None:
        self._times = [time for time, _ in changes]
        self._factors = [1.0, *(factor for _, factor in changes)]

    def end(self, start: float, work: float) -> float:
        """Return when ``work`` that begins at ``start`` is done."""
        for until, factor in self._stretches(start):
            if work <= (until - start) * factor:
                return start + work / factor
            work -= (until - start) * factor
            start = until
        raise AssertionError("the last stretch is without end")

    def done(self, start: float, now: float) -> float:
        """Return the work done from ``start`` to ``now``."""
        work = 0.0
        for until, factor in self._stretches(start):
            if now <= until:
                return work + (now - start) * factor
            work += (until - start) * factor
            start = until
        raise AssertionError("the last stretch is without end")

    def _stretches(self, start: float) -> Iterator[tuple[float, float]]:
        """Yield (end, factor) of each stretch of constant speed from ``start`` on."""
        for number in range(bisect_right(self._times, start), len(self._times)):
            yield self._times[number], self._factors[number]
        yield math.inf, self._factors[-1]


@dataclass
class SamplePosition:
    """A worker's samples, and its position in them: whole passes, and samples of the next one that are trained."""

    samples: int = 0
    passes: int = 0
    of_next: int = 0

    @property
    def done(self) -> int:
        """The samples trained, if it had had all its samples from the start."""
        return self.passes * self.samples + self.of_next

    def change(self, samples: int) -> None:
        """Add samples, or remove some if ``samples`` is negative; of these, those trained already go last."""
        self.samples += samples
        self.of_next = min(self.of_next, self.samples)

    def advance(self, trained: int, until: Fraction) -> Fraction:
        """Add trained samples; return the passes that are done, at most ``until``."""
        if not self.samples:
            return until
        done = self.done + trained
        self.passes, self.of_next = divmod(done, self.samples)
        return min(Fraction(done, self.samples), until)

    def iterations(self, order: Order, batch: int) -> int:
        """Return the iterations that an order needs."""
        goal = -(-order.until.numerator * self.samples // order.until.denominator)
        iterations = max(0, -(-(goal - self.done) // batch))
        return min(iterations, order.iterations or iterations)


@dataclass(frozen=True)
class RunningOrder:
    """The order that a worker trains, or has trained last.

    Attributes:
        until: the passes at its end.
        iterations, samples: what it trains for it.
        began, ends: seconds since the start of the run.
        work: seconds at the speed of the start.
        waited: seconds that the worker waited for it.
    """

    until: Fraction = Fraction(0)
    iterations: int = 0
    samples: int = 0
    began: float = 0.0
    ends: float = 0.0
    work: float = 0.0
    waited: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of its training."""
        return self.ends - self.began


class SimulatedWorker(Process):
    """A worker that counts its samples and its seconds; the simulator decides when events happen.

    It trains whole batches, which reach over the end of a pass, so the next pass may need an iteration less. The time
    of an order is drawn once: the sum of i iterations that vary independently has √i times the standard deviation of
    one.

    Args:
        number: of the worker.
        batch: samples of an iteration.
        seed: of its noise. Order k of a worker draws the same number whatever the schedule is, so that schedules can be
            compared.

    Attributes:
        passes: passes that it has done.
        trained: samples that it has trained, in all passes together.
        warming: seconds in which it got ready, before its first iteration.
        is_training: whether it has an order to train; otherwise it waits for the server since ``now``.
        stopped: when it stopped or died.
        died: whether it died.
    """

    def __init__(self, number: int, node: Node, batch: int, seed: object) -> None:
        super().__init__()
        self.number = number
        self.node = node
        self.passes = Fraction(0)
        self.trained = 0
        self.warming = 0.0
        self.is_training = False
        self.stopped = NEVER
        self.died = False
        self._batch = batch
        self._position = SamplePosition()
        self._order = RunningOrder()
        self._pace = SpeedProfile(node.changes)
        self._cold = node.warm_up  # seconds of it that are still to come
        self._generator = random.Random(f"{seed}/{number}")

    @property
    def samples(self) -> int:
        """The number of samples that it has."""
        return self._position.samples

    @property
    def is_active(self) -> bool:
        """Whether it has neither stopped nor died."""
        return self.stopped == NEVER

    @property
    def is_between_passes(self) -> bool:
        """Whether it has ended a pass and has no order to begin another."""
        return not self.is_training and self.passes.denominator == 1

    def start(self, order: Order, now: float) -> float:
        """Begin to train; return when the order is done."""
        assert not self.is_training, (self.number, "is training")
        waited = now - self.now
        self.wait_until(now)
        self.is_training = True
        if not self.samples:  # it may have got its first samples later than others
            self._position = SamplePosition(passes=order.passes.numerator // order.passes.denominator)
        self._position.change(size(order.runs) - size(order.gives))
        iterations = self._position.iterations(order, self._batch)
        samples = iterations * self._batch
        work = samples / self.node.speed
        if self.node.noise:
            noise = self.node.noise * self._generator.gauss(0, 1)
            work *= max(LEAST, 1 + noise / max(iterations, 1) ** 0.5)
        self.warming += self._cold
        began, self._cold = now + self._cold, 0.0
        ends = self._pace.end(began, work)
        self._order = RunningOrder(order.until, iterations, samples, began, ends, work, waited)
        return ends

    def finish(self) -> SubmissionReport:
        """Finish the order; return the worker's report."""
        order = self._order
        self.passes = self._position.advance(order.samples, order.until)
        self.trained += order.samples
        self.is_training, self.now, self.busy = False, order.ends, self.busy + order.seconds
        return SubmissionReport(self.number, self.passes, order.iterations, order.samples, order.seconds, order.waited)

    def progress(self, now: float) -> tuple[int, float]:
        """Return the samples of its last order trained in whole iterations, and their seconds."""
        order = self._order
        if now >= order.ends:
            return order.samples, order.seconds
        if now <= order.began:
            return 0, 0.0
        done = self._pace.done(order.began, now) / order.work * order.iterations
        iterations = int(done)
        return iterations * self._batch, (now - order.began) * iterations / done if iterations else 0.0

    def stop(self, now: float, died: bool = False) -> None:
        """Stop training."""
        if self.is_training:
            self.busy += max(now - self._order.began, 0.0)
            self.warming -= max(self._order.began - now, 0.0)
        else:
            self.wait_until(now)
        self.stopped = now
        self.died = died
