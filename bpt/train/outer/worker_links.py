"""Links: the protocols of both ends of the connection between the server and a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.system.comm.base import Buffer
from bpt.train.outer.messages import WorkerProgress
from bpt.train.solver.solver import RunOutcome


@dataclass(frozen=True)
class Submission:
    """A worker's report with its flat weights or gradients, or ``None`` if parameter servers have received these."""

    report: SubmissionReport
    weights: Buffer | None


@dataclass(frozen=True)
class WorkerLost:
    """The loss of a worker."""

    worker: int


Event: TypeAlias = WorkerProgress | Submission | Settled | WorkerLost


class ToWorker(Protocol):
    """The server's end of a link; its methods never wait for the worker."""

    def poll(self) -> Event | None:
        """Return the next event from the worker, or ``None`` if there is none."""

    def send(self, order: Order, weights: Buffer | None) -> None:
        """Send an order; neither it nor the weights may change afterwards."""

    def hurry(self) -> None:
        """Ask the worker to submit after its iteration."""

    def finish(self, outcome: RunOutcome) -> None:
        """Send the outcome of the run to the worker, which has stopped."""

    @property
    def idle(self) -> bool:
        """Whether no message is under way in either direction."""

    @property
    def sent(self) -> int:
        """Bytes of weights sent to the worker."""

    @property
    def received(self) -> int:
        """Bytes of weights, or gradients, received from it."""


class ToServer(Protocol):
    """A worker's end of a link."""

    def report(self, word: WorkerProgress | Settled) -> None:
        """Report the progress of a pass, or the choice of how to compute, without waiting."""

    def submit(self, report: SubmissionReport, weights: Buffer) -> None:
        """Submit weights, or gradients, without waiting; the buffer then belongs to the server."""

    def order(self) -> tuple[Order, Buffer | None]:
        """Wait for the next order, and the weights that come with it."""

    def finished(self) -> RunOutcome:
        """Wait for the end of the run after an order to stop, and return its outcome."""

    @property
    def hurried(self) -> bool:
        """Whether the server has asked for a submission after this iteration, since the last order."""
