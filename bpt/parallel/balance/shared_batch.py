"""SharedBatch: what balancing must know of the ranks that share a batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bpt.graph.share import Share
from bpt.nn.net import Net
from bpt.parallel.balance.batch_shares import Balance
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid


class SharedBatch(Protocol):
    """The ranks that share each batch, and the shares that they have of it."""

    balance: Balance
    samples: Communicator
    grid: ProcessGrid

    @property
    def has_outputs(self) -> bool:
        """Whether this rank runs the layers that make the net's outputs."""

    @property
    def number(self) -> int:
        """The number of shares of a batch."""

    @property
    def ranks_with_samples(self) -> tuple[int, ...]:
        """A rank of each share of a batch, by its number in the world."""

    def shares(self, samples: int) -> tuple[Share, ...]:
        """Return each rank's share of a training batch whose text says ``samples``."""

    def reshare(self, nets: Iterable[Net]) -> None:
        """Let all layers of ``nets`` know that the balance has changed."""
