"""Transport: the collectives of an exchange, on numbers and on codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bpt.parallel.exchange.transport import coded
from bpt.parallel.exchange.transport.coded import Code
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.comm.ring_reduction import ring_allreduce
from bpt.system.comm.tree_collectives import tree_bcast, tree_reduce

Send = Callable[[Communicator, Buffer], None]
"""A collective call with a message: it goes from all ranks to one, or from one to all, or to all from all."""

SendCoded = Callable[[Communicator, Tensor, Tensor, Code], None]
"""A function of values: it returns their rounding loss and writes them as bytes; see ``coded``."""


@dataclass(frozen=True)
class Transport:
    """The collectives that an exchange sends its messages by.

    Attributes:
        reduce: leaves the sum on rank 0.
        bcast: lets all have rank 0's numbers.
        sum: leaves the sum on all ranks, equal to the last bit.
        sum_coded: the same with codes on the way, on all ranks or on rank 0, as the exchange wants it.
    """

    reduce: Send
    bcast: Send
    sum: Send
    sum_coded: SendCoded


def _tree_sum(comm: Communicator, buffer: Buffer) -> None:
    tree_reduce(comm, buffer)
    tree_bcast(comm, buffer)


LIBRARY = Transport(Communicator.Reduce, Communicator.Bcast, Communicator.Allreduce, coded.allreduce)
RING = Transport(tree_reduce, tree_bcast, ring_allreduce, coded.ring_allreduce)
TREE = Transport(tree_reduce, tree_bcast, _tree_sum, coded.tree_reduce)
