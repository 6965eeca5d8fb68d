"""The messages between server and workers, as numbers in buffers.

A head of fixed length, and what it announces: weights, samples. Everything else travels beside; see ``links``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

import numpy as np

from bpt.base.signals import SignalAction
from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.system.comm.base import Buffer
from bpt.train.solver.solver import RunOutcome

LENGTH = 16  # of a head; float64, exact for whole numbers up to 2^53
_ACTIONS = tuple(SignalAction)


class MessageKind(IntEnum):
    """The subject of a head."""

    PROGRESS = 1  # of a worker within a pass
    SUBMIT = 2  # a report; weights (or gradients) follow
    ORDER = 3  # samples and perhaps weights follow
    HURRY = 4  # to a worker: submit after this iteration
    SETTLED = 5  # how a worker computes
    FINISHED = 6  # to a worker that has stopped: how the run has ended


@dataclass(frozen=True)
class WorkerProgress:
    """A worker's report of its progress while it trains.

    Attributes:
        worker: from 0.
        samples, seconds: since its last order.
        loss: of the last iteration.
        action: what a signal asks for.
        terminated: whether it was SIGTERM.
    """

    worker: int
    samples: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    action: SignalAction = SignalAction.NONE
    terminated: bool = False


def head() -> Buffer:
    """Return an empty head."""
    return np.zeros(LENGTH)


def progress_head(progress: WorkerProgress) -> Buffer:
    """Return progress as a head; its source identifies the worker."""
    action = _ACTIONS.index(progress.action)
    return _head(MessageKind.PROGRESS, progress.samples, progress.seconds, progress.loss, action, progress.terminated)


def read_progress(numbers: Buffer, worker: int) -> WorkerProgress:
    """Return the progress that ``progress_head`` has written."""
    samples, seconds, loss, action, terminated = numbers[1:6].tolist()
    return WorkerProgress(worker, int(samples), seconds, loss, _ACTIONS[int(action)], bool(terminated))


def settled_head(settled: Settled) -> Buffer:
    """Return as a head how a worker computes."""
    return _head(MessageKind.SETTLED, settled.engine, settled.inner)


def read_settled(numbers: Buffer, worker: int) -> Settled:
    """Return what ``settled_head`` has written."""
    return Settled(worker, int(numbers[1]), int(numbers[2]))


def report_head(report: SubmissionReport) -> Buffer:
    """Return a report as a head."""
    passes = report.passes
    return _head(
        MessageKind.SUBMIT, passes.numerator, passes.denominator, report.iterations, report.samples,
        report.seconds, report.waited, report.accuracy, report.loss,
    )  # fmt: skip


def read_report(numbers: Buffer, worker: int) -> SubmissionReport:
    """Return what ``report_head`` has written."""
    over, under, iterations, samples, *rest = numbers[1:9].tolist()
    return SubmissionReport(worker, Fraction(int(over), int(under)), int(iterations), int(samples), *rest)


def order_head(order: Order) -> Buffer:
    """Return an order, without its samples, as a head."""
    until, passes = order.until, order.passes
    return _head(
        MessageKind.ORDER, len(order.runs), order.version, until.numerator, until.denominator,
        passes.numerator, passes.denominator, order.iterations, order.weights, order.stop,
    )  # fmt: skip


def number_of_runs(numbers: Buffer) -> int:
    """Return how many runs an order's head announces."""
    return int(numbers[1])


def read_order(numbers: Buffer, worker: int, runs: Buffer) -> Order:
    """Return the order that ``order_head`` has written; ``runs`` is from ``runs_buffer``."""
    version, until, until_under, passes, passes_under, iterations, weights, stop = map(int, numbers[2:10])
    return Order(
        worker, version, Fraction(until, until_under), Fraction(passes, passes_under),
        tuple((start, end) for start, end in runs.tolist()), iterations, bool(weights), bool(stop),
    )  # fmt: skip


def runs_buffer(order: Order) -> Buffer:
    """Return the samples of an order as (runs, 2)."""
    return np.array(order.runs, np.int64).reshape(-1, 2)


def finished_head(outcome: RunOutcome) -> Buffer:
    """Return as a head how the run has ended."""
    return _head(MessageKind.FINISHED, outcome.iterations, outcome.terminated, outcome.short)


def read_finished(numbers: Buffer) -> RunOutcome:
    """Return what ``finished_head`` has written."""
    return RunOutcome(int(numbers[1]), bool(numbers[2]), bool(numbers[3]))


def hurry_head() -> Buffer:
    """Return a head that asks a worker to submit after this iteration."""
    return _head(MessageKind.HURRY)


def kind_of(numbers: Buffer) -> MessageKind:
    """Return the kind of a head."""
    return MessageKind(int(numbers[0]))


def _head(*numbers: float) -> Buffer:
    return np.array([*numbers, *[0.0] * (LENGTH - len(numbers))])
