"""Transport: the collectives of an exchange, on numbers and on codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bpt.parallel.exchange.transport import coded
from bpt.parallel.exchange.transport.coded import Code
from bpt.system.comm.base import Buffer, Communicator, Counts
from bpt.system.comm.pieces import flat, runs
from bpt.system.comm.ring_reduction import ring_allgather, ring_allreduce, ring_reduce_scatter
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
        sum_runs: returns this rank's run of the sum; it may overwrite the message.
        gather_runs: lets all have the runs of all; each has its own in the message.
    """

    reduce: Send
    bcast: Send
    sum: Send
    sum_coded: SendCoded
    sum_runs: Callable[[Communicator, Buffer, Counts], Buffer]
    gather_runs: Callable[[Communicator, Buffer, Counts], None]


def _tree_sum(comm: Communicator, buffer: Buffer) -> None:
    tree_reduce(comm, buffer)
    tree_bcast(comm, buffer)


def _sum_runs(comm: Communicator, buffer: Buffer, counts: Counts) -> Buffer:
    own = np.empty(counts[comm.rank], buffer.dtype)
    comm.Reduce_scatter(flat(buffer), own, counts)
    return own


def _ring_sum_runs(comm: Communicator, buffer: Buffer, counts: Counts) -> Buffer:
    own: Buffer = ring_reduce_scatter(comm, buffer, counts).copy()  # so that the message can be freed
    return own


def _gather_runs(comm: Communicator, buffer: Buffer, counts: Counts) -> None:
    comm.Allgatherv(runs(buffer, counts)[comm.rank].copy(), flat(buffer), counts)


_RUNS = _sum_runs, _gather_runs
LIBRARY = Transport(Communicator.Reduce, Communicator.Bcast, Communicator.Allreduce, coded.allreduce, *_RUNS)
RING = Transport(tree_reduce, tree_bcast, ring_allreduce, coded.ring_allreduce, _ring_sum_runs, ring_allgather)
TREE = Transport(tree_reduce, tree_bcast, _tree_sum, coded.tree_reduce, *_RUNS)
