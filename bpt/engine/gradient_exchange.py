"""GradientExchange: the protocol by which an executor lets ranks agree on gradients or weights."""

from __future__ import annotations

from typing import ClassVar, Protocol

from bpt.engine.compute import Update
from bpt.engine.scheduler import Scheduler


class GradientExchange(Protocol):
    """Executes the instructions Broadcast, Gather, ExchangeGradients, Wait and Average.

    Attributes:
        broadcasts: whether an iteration starts with Broadcast.
    """

    broadcasts: ClassVar[bool]

    def schedule(self, scheduler: Scheduler) -> Scheduler:
        """Return ``scheduler`` with the instructions that this exchange adds to it."""

    def broadcast(self) -> None:
        """``Broadcast``: let weights become those of the rank that updates them."""

    def gather(self, segment: int) -> None:
        """``Gather(segment)``: return when this rank has the weights of a segment that other ranks have updated."""

    def take_early(self, update: Update | None) -> Update | None:
        """Take over the early updates of the iteration that begins, if there are some and this exchange makes them.

        Returns:
            What may update parameters in the backward pass.
        """

    def start(self, segment: int) -> None:
        """``ExchangeGradients(segment)``: start to sum the gradients of a segment."""

    def wait(self) -> None:
        """``Wait``: return when the gradients of what this rank updates are global."""

    def updated(self) -> None:
        """After ``UpdateWeights``: start to send other ranks the weights that only this rank has updated."""

    def complete_weights(self) -> None:
        """Wait for the weights of all segments that other ranks have updated."""

    def average(self) -> None:
        """``Average``: let weights become the average of those of all replicas."""
