"""The messages between server and workers, as numbers in buffers.

A message is a head of fixed length, perhaps followed by the weights or samples that it announces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

import numpy as np

from bpt.base.signals import SignalAction
from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.system.comm.base import Buffer
from bpt.train.solver.solver import RunOutcome

_GIVES = 10  # place of the number of runs that an order gives
LENGTH = 16  # numbers in a head; float64, exact for whole numbers up to 2^53
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
        worker: number of the worker, from 0.
        samples, seconds: samples and seconds since its last order.
        loss: loss of the last iteration.
        action: the action that a signal asks for.
        terminated: whether the signal was SIGTERM.
    """

    worker: int
    samples: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    action: SignalAction = SignalAction.NONE
    terminated: bool = False


Message: TypeAlias = WorkerProgress | Settled | SubmissionReport | Order | RunOutcome
M = TypeVar("M", WorkerProgress, Settled, SubmissionReport, Order, RunOutcome)

# The numbers of each head after its kind, in this order; a Fraction has two, and runs are replaced by their number.
_FIELDS: Mapping[type[Message], tuple[MessageKind, Mapping[str, type]]] = {
    WorkerProgress: (
        MessageKind.PROGRESS,
        {"samples": int, "seconds": float, "loss": float, "action": SignalAction, "terminated": bool},
    ),
    Settled: (MessageKind.SETTLED, {"engine": int, "inner": int}),
    SubmissionReport: (
        MessageKind.SUBMIT,
        {
            "passes": Fraction, "iterations": int, "samples": int, "seconds": float, "waited": float,
            "accuracy": float, "loss": float,
        },
    ),
    Order: (
        MessageKind.ORDER,
        {
            "runs": tuple, "version": int, "until": Fraction, "passes": Fraction, "iterations": int,
            "weights": bool, "stop": bool, "gives": tuple,
        },
    ),
    RunOutcome: (MessageKind.FINISHED, {"iterations": int, "terminated": bool, "short": bool}),
}  # fmt: skip
_WRITERS: Mapping[type, Callable[[Any], Sequence[float]]] = {
    Fraction: Fraction.as_integer_ratio,
    SignalAction: lambda action: (_ACTIONS.index(action),),
    tuple: lambda runs: (len(runs),),
}
_READERS: Mapping[type, Callable[[Iterator[float]], object]] = {
    int: lambda numbers: int(next(numbers)),
    float: next,
    bool: lambda numbers: bool(next(numbers)),
    Fraction: lambda numbers: Fraction(int(next(numbers)), int(next(numbers))),
    SignalAction: lambda numbers: _ACTIONS[int(next(numbers))],
    tuple: next,  # how many runs; they themselves follow
}


def head(*numbers: float) -> Buffer:
    """Return a head with these numbers; by default an empty one."""
    return np.array([*numbers, *[0.0] * (LENGTH - len(numbers))])


def write_head(message: Message) -> Buffer:
    """Return a message as a head; its source identifies the worker, and the runs of an order follow."""
    kind, fields = _FIELDS[type(message)]
    numbers: list[float] = [kind]
    for name, form in fields.items():
        value = getattr(message, name)
        numbers += _WRITERS[form](value) if form in _WRITERS else (value,)
    return head(*numbers)


def read_head(kind: type[M], numbers: Buffer, **others: Any) -> M:
    """Return the message in a head of ``write_head``.

    Args:
        others: the fields that are not in the head: ``worker``, and the samples of an order.
    """
    rest = iter(numbers[1:].tolist())
    fields: dict[str, Any] = {name: _READERS[form](rest) for name, form in _FIELDS[kind][1].items()}
    return kind(**(fields | others))


def hurry_head() -> Buffer:
    """Return a head that asks a worker to submit after this iteration."""
    return head(MessageKind.HURRY)


def kind_of(numbers: Buffer) -> MessageKind:
    """Return the kind of a head."""
    return MessageKind(int(numbers[0]))


def write_runs(order: Order) -> Buffer:
    """Return the samples of an order as (runs, 2): those that the worker gets, then those that it gives."""
    return np.array(order.runs + order.gives, np.int64).reshape(-1, 2)


def empty_runs(numbers: Buffer) -> Buffer:
    """Return memory for the samples that an order's head announces."""
    return np.empty((int(numbers[1]) + int(numbers[_GIVES]), 2), np.int64)


def read_order(numbers: Buffer, worker: int, runs: Buffer) -> Order:
    """Return the order from its head and the samples of ``write_runs``."""
    samples = tuple((start, end) for start, end in runs.tolist())
    gets = int(numbers[1])
    return read_head(Order, numbers, worker=worker, runs=samples[:gets], gives=samples[gets:])
