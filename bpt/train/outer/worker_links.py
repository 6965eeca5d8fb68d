"""Links: what the server sees of its workers, and a worker of the server, whatever lies between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.system.comm.base import Buffer
from bpt.train.outer.messages import WorkerProgress
from bpt.train.solver.solver import RunOutcome


@dataclass(frozen=True)
class Submission:
    """A worker's report, with flat weights or gradients; ``None`` if parameter servers have got them."""

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
        """Return what has come from the worker since the last call, if anything."""

    def send(self, order: Order, weights: Buffer | None) -> None:
        """Send an order; neither it nor the weights may change afterwards."""

    def hurry(self) -> None:
        """Ask the worker to submit after its iteration."""

    def finish(self, outcome: RunOutcome) -> None:
        """Tell a worker that has stopped how the run has ended."""

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way in either direction."""

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
        """Submit what has been trained, without waiting; the buffer belongs to the server from now on."""

    def order(self) -> tuple[Order, Buffer | None]:
        """Wait for the next order, and the weights that come with it."""

    def finished(self) -> RunOutcome:
        """Wait until the run has ended, after an order to stop."""

    @property
    def hurried(self) -> bool:
        """Whether the server has asked for a submission after this iteration, since the last order."""
