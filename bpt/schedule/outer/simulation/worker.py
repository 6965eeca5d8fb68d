"""A computing node that trains as its orders say, on a virtual clock."""

from __future__ import annotations

import random
from fractions import Fraction

from bpt.balance.allocation import size
from bpt.schedule.outer.messages import Order, Report
from bpt.schedule.outer.simulation.cluster import NEVER, Node
from bpt.schedule.outer.simulation.pace import Pace

LEAST = 0.01  # of what an order takes in the mean; noise makes it no shorter


class Worker:
    """Counts what it has trained and how long that took; when things happen, the simulator says.

    It trains whole batches, which reach over the end of a pass, so the next pass may need an iteration less. The time
    of an order is drawn once: the sum of i iterations that vary independently has √i times the standard deviation of
    one.

    Args:
        number: of the worker.
        batch: samples of an iteration.
        seed: of its noise. Order k of a worker draws the same number whatever the schedule is, so that schedules can be
            compared.

    Attributes:
        samples: that it has.
        passes: that it has done.
        trained: samples that it has trained, in all passes together.
        computing, waiting: seconds; of what is over.
        ready: since when it waits for the server; ``None``: it is training.
        stopped: when it stopped or died.
        died: whether it died.
    """

    def __init__(self, number: int, node: Node, batch: int, seed: object) -> None:
        self.number = number
        self.node = node
        self.samples = 0
        self.passes = Fraction(0)
        self.trained = 0
        self.computing = 0.0
        self.waiting = 0.0
        self.ready: float | None = 0.0
        self.stopped = NEVER
        self.died = False
        self._batch = batch
        self._pace = Pace(node.changes)
        self._generator = random.Random(f"{seed}/{number}")
        self._position = (0, 0)  # whole passes, and samples of the next, that it has trained
        # Of the order that it works at, or has done last:
        self._began = 0.0
        self._ends = 0.0
        self._work = 0.0
        self._waited = 0.0
        self._iterations = 0
        self._until = Fraction(0)

    @property
    def active(self) -> bool:
        """Whether it has neither stopped nor died."""
        return self.stopped == NEVER

    @property
    def between_passes(self) -> bool:
        """Whether it has ended a pass and not been told to begin another."""
        return self.ready is not None and self.passes.denominator == 1

    def start(self, order: Order, now: float) -> float:
        """Begin to train; returns when the order is done."""
        assert self.ready is not None, (self.number, "is training")
        self._waited = now - self.ready
        self.waiting += self._waited
        self.ready = None
        if not self.samples:  # it may have got its first samples later than others
            self._position = (order.passes.numerator // order.passes.denominator, 0)
        self.samples += size(order.runs)
        self._until = order.until
        self._iterations = self._iterations_of(order)
        self._work = self._iterations * self._batch / self.node.speed
        if self.node.noise:
            noise = self.node.noise * self._generator.gauss(0, 1)
            self._work *= max(LEAST, 1 + noise / max(self._iterations, 1) ** 0.5)
        self._began = now
        self._ends = self._pace.end(now, self._work)
        return self._ends

    def finish(self) -> Report:
        """The order is done: what the worker tells."""
        seconds, samples = self._ends - self._began, self._iterations * self._batch
        self.passes = self._until
        if self.samples:
            done = self._done + samples
            self._position = divmod(done, self.samples)
            self.passes = min(Fraction(done, self.samples), self._until)
        self.trained += samples
        self.computing += seconds
        self.ready = self._ends
        return Report(self.number, self.passes, self._iterations, samples, seconds, self._waited)

    def progress(self, now: float) -> tuple[int, float]:
        """Samples of its order, or of the last one, trained in whole iterations, and the seconds that these took."""
        if now >= self._ends:
            return self._iterations * self._batch, self._ends - self._began
        done = self._pace.done(self._began, now) / self._work * self._iterations
        iterations = int(done)
        return iterations * self._batch, (now - self._began) * iterations / done if iterations else 0.0

    def stop(self, now: float, died: bool = False) -> None:
        """It trains no more."""
        if self.ready is None:
            self.computing += now - self._began
        else:
            self.waiting += now - self.ready
        self.stopped = now
        self.died = died

    @property
    def _done(self) -> int:
        """Samples trained, if it had had all that it has from the start."""
        return self._position[0] * self.samples + self._position[1]

    def _iterations_of(self, order: Order) -> int:
        goal = -(-order.until.numerator * self.samples // order.until.denominator)
        iterations = max(0, -(-(goal - self._done) // self._batch))
        return min(iterations, order.iterations or iterations)
