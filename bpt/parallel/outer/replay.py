"""Replay: the schedule of an earlier run, instruction by instruction, so that an asynchronous run can be repeated."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from bpt.data.sample_partition import size
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    CutShort,
    Discard,
    Lost,
    Merge,
    Order,
    OuterInstruction,
    SendOrder,
    Settled,
    SubmissionReport,
)


def _with_actual_ends(instructions: Iterable[OuterInstruction]) -> list[OuterInstruction]:
    """Return the instructions with orders that end where workers have submitted."""
    cuts: dict[int, CutShort] = {}
    backward: list[OuterInstruction] = []
    for instruction in reversed(list(instructions)):
        match instruction:
            case Settled():  # a worker knows that from the start
                continue
            case CutShort(worker):
                cuts[worker] = instruction
            case SendOrder(order) if order.worker in cuts and not order.stop:
                cut = cuts.pop(order.worker)
                iterations = cut.iterations if order.iterations else 0
                backward.append(SendOrder(replace(order, until=cut.passes, iterations=iterations)))
            case _:
                backward.append(instruction)
    return backward[::-1]


class Replay:
    """Yields logged instructions, each as soon as its submissions are there; takes the place of an OuterSchedule.

    Workers whose log ends, since they died or the run was stopped, get the order to stop at their next submission.

    Args:
        instructions: of the run, in order.
        workers: m.
        total: K', the passes that each worker was to make.

    Attributes:
        broken: whether the run could not be repeated to where the log ends: a worker was lost, or the log has holes.
        decisions: in the log.
        short: whether the log ends before its run did: it does not stop or lose all workers.
        stopped: whether the run of the log was stopped before all passes were done.
    """

    def __init__(self, instructions: Iterable[OuterInstruction], workers: int, total: Fraction) -> None:
        logged = list(instructions)
        stops = [each.order for each in logged if isinstance(each, SendOrder) and each.order.stop]
        lost = {worker for each in logged if isinstance(each, Lost) for worker in each.workers}
        self.decisions = len(logged)
        self.short = not {order.worker for order in stops} | lost >= set(range(workers))
        self.stopped = not self.short and any(0 < order.passes <= order.until < total for order in stops)
        self._left = deque(_with_actual_ends(logged))
        self._total = total
        self._passes = [Fraction(0)] * workers
        self._samples = [0] * workers
        self._submitted: set[int] = set()
        self._waiting = set(range(workers))  # for an order
        self.broken = False
        self._stopped: set[int] = set()
        self._lost: set[int] = set()
        self._workers = workers

    def begin(self, frequencies: Sequence[float | None]) -> list[OuterInstruction]:
        """Return the first orders; the nodes' measurements do not count."""
        return self._advance()

    def submitted(self, report: SubmissionReport) -> list[OuterInstruction]:
        """Return the logged instructions that follow from a worker's submission."""
        self._passes[report.worker] = report.passes
        self._submitted.add(report.worker)
        self._waiting.add(report.worker)
        return self._advance()

    def progressed(self, worker: int, samples: int, seconds: float) -> None:
        """Ignore progress, which does not count in a replay."""

    def lost(self, *workers: int) -> list[OuterInstruction]:
        """Return what follows from a loss: the run cannot be repeated to its end, and workers without a turn stop."""
        self._lost |= set(workers)
        self._submitted -= self._lost  # their weights are lost
        return self._advance()

    def stop(self) -> None:
        """Let every worker stop when it submits."""
        self._left.clear()

    @property
    def done(self) -> bool:
        """Whether all workers have stopped training."""
        return len(self._stopped | self._lost) == self._workers

    @property
    def progress(self) -> Fraction:
        """The part of all training that is done (passes by samples), from 0 to 1."""
        done = sum((n * min(p, self._total) for n, p in zip(self._samples, self._passes, strict=True)), Fraction(0))
        return done / (sum(self._samples) * self._total) if done else done

    def _advance(self) -> list[OuterInstruction]:
        instructions: list[OuterInstruction] = []
        while self._left and self._ready(self._left[0]):
            instruction = self._left.popleft()
            if isinstance(instruction, SendOrder):
                self._sent(instruction.order)
            elif isinstance(instruction, Lost):
                for worker in instruction.workers:
                    self._samples[worker] = 0
            instructions.append(instruction)
        absent = self._lost | self._stopped
        none_trains = len(self._waiting | absent) == self._workers  # a log with holes would never continue
        if self._left and (none_trains or self._needs(self._left[0]) & absent):
            self._left.clear()
            self.broken = True
        if not self._left:
            instructions += [self._stop(worker) for worker in sorted(self._waiting - self._lost)]
        return instructions

    def _ready(self, instruction: OuterInstruction) -> bool:
        """Return whether its workers have submitted; for an order, one submission is enough."""
        there = self._waiting if isinstance(instruction, SendOrder) else self._submitted
        return self._needs(instruction) <= there

    @staticmethod
    def _needs(instruction: OuterInstruction) -> set[int]:
        match instruction:
            case Merge(update) | ApplyGradient(update) | Discard(update):
                return {update.worker}
            case AverageSubmitted(workers):
                return set(workers)
            case SendOrder(order):
                return {order.worker}
            case _:
                return set()

    def _sent(self, order: Order) -> None:
        self._samples[order.worker] += size(order.runs) - size(order.gives)
        self._submitted.discard(order.worker)
        self._waiting.discard(order.worker)
        if order.stop:
            self._stopped.add(order.worker)
            if order.until >= self._total:  # it has done its part, be that a little less than K' passes
                self._passes[order.worker] = self._total

    def _stop(self, worker: int) -> SendOrder:
        order = Order(worker, 0, weights=False, stop=True)
        self._sent(order)
        return SendOrder(order)
