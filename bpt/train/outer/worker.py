"""Worker: a computing node of the outer layer, which trains its own samples between its submissions."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Protocol

from bpt.base.signals import SignalAction
from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.system.comm.base import Buffer
from bpt.train.outer.assignment import Assignment
from bpt.train.outer.messages import WorkerProgress
from bpt.train.outer.trainer import Trainer
from bpt.train.outer.worker_links import ToServer
from bpt.train.solver.solver import RunOutcome

BEAT = 0.25  # seconds between two reports of progress


class Signals(Protocol):
    """The signals that a computing node has received (SignalActions)."""

    @property
    def terminated(self) -> bool: ...
    def take(self) -> SignalAction: ...


class Worker:
    """Executes orders until one says stop.

    As in a single process, an iteration trains a batch of the size in the net's text, and a batch may reach over the
    end of a pass. Learning rates follow the completed fraction of all passes, so they fall as in a single process. The
    worker keeps its history (momentum) when it gets new weights.

    Args:
        number: its number, from 0.
        trainer: the trainer of its net.
        link: the link to the server.
        signals: signals to this node, if the server does not see them.
    """

    def __init__(
        self, number: int, trainer: Trainer, link: ToServer, assignment: Assignment, signals: Signals | None = None
    ) -> None:
        self._number = number
        self._trainer = trainer
        self._link = link
        self._assignment = assignment
        self._signals = signals
        self._q = 0.0
        self._layers = trainer.layers  # all layers have the same positions
        self._allocated = False
        self._iterations = 0

    def run(self) -> RunOutcome:
        """Train until the server says stop, and return the outcome of the run."""
        order, weights = self._link.order()
        waited = 0.0
        while not order.stop:
            report = self.execute(order, weights, waited)
            del weights
            asked = time.perf_counter()
            self._link.submit(report, self.trained())
            order, weights = self._link.order()
            waited = time.perf_counter() - asked
        outcome = self._link.finished()
        self._trainer.end(outcome)
        return outcome

    def execute(self, order: Order, weights: Buffer | None, waited: float = 0.0) -> SubmissionReport:
        """Train an order; ``trained`` then returns what to submit.

        Args:
            weights: the weights to train from; ``None``: its own.
            waited: seconds that it has waited for the order.
        """
        self._allocate(order)
        if weights is not None:
            self._trainer.load(weights)
        return self._train(order, waited)

    def _allocate(self, order: Order) -> None:
        """Add the samples of an order to the training data, and remove those that it gives to others."""
        begun = 0 if self._allocated else int(order.passes)  # it may get its first samples later than others
        self._trainer.allocate(order.runs, begun, order.gives)
        if not self._allocated:
            self._warm_up()
        self._allocated = True

    def _warm_up(self) -> None:
        """Warm up, so that the first passes are like all others, and report the chosen engines.

        So the times of the first batch, by which the next ones are divided, are those of training. And a replay, which
        knows the engines from the start, trains in the same way.
        """
        known = self._trainer.settled
        self._trainer.warm_up()
        if not known:
            self._link.report(Settled(self._number, *self._trainer.engines))

    @property
    def _position(self) -> int:
        return self._layers[0].position

    def _train(self, order: Order, waited: float) -> SubmissionReport:
        losses: list[float] = []
        first = self._position
        start = time.perf_counter()
        beat = -math.inf  # report at once: the server needs the progress of all workers when the first pass ends
        while self._done < order.until and len(losses) < (order.iterations or math.inf):
            losses.append(self._iterate())
            now = time.perf_counter()
            action = self._signals.take() if self._signals else SignalAction.NONE
            if now - beat > BEAT or action is not SignalAction.NONE:
                beat = now
                trained = self._position - first
                terminated = bool(self._signals and self._signals.terminated)
                self._link.report(WorkerProgress(self._number, trained, now - start, losses[-1], action, terminated))
            if self._link.hurried:
                break
        if self._assignment.after and self._assignment.weigh and losses and not self._assignment.gradients:
            self._trainer.examine(len(losses))
        tally = self._trainer.tally()
        if tally.counted or not tally.classifies:
            self._q = tally.ratio
        return SubmissionReport(
            self._number,
            min(self._done, order.until),
            len(losses),
            self._position - first,
            time.perf_counter() - start,
            waited,
            self._q if self._assignment.weigh else 1.0,
            sum(losses) / len(losses) if losses else math.nan,
        )

    @property
    def _done(self) -> Fraction:
        """Return the number of passes done, including the fraction of the current one."""
        return self._layers[0].passes

    def _iterate(self) -> float:
        """Train one iteration; return its loss."""
        self._iterations += 1
        return self._trainer.step(self._assignment.iteration(self._done))

    def trained(self) -> Buffer:
        """Return the weights, or the gradients, to submit."""
        return self._trainer.trained()
