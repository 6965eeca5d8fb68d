"""The tree of ``exchange: TREE`` between GPUs of a host, which read each other's memory: nothing goes through the host.

As in Caffe, a rank adds its children's gradients from their memory, and takes the weights from its parent's. Messages
of one byte say when they are there, and when they have been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor, nn

from bpt.parallel.exchange.buckets import Bucket
from bpt.parallel.exchange.flat import unflatten
from bpt.system.comm.base import Communicator
from bpt.system.comm.tree_collectives import children_of, parent_of
from bpt.system.device import synchronize
from bpt.system.device.shared import open_shared, share

COPY = "D2D"  # what a copy from device to device is called in events


class DeviceTree:
    """A bucket's gradients and weights in one piece of device memory that the other ranks can read.

    Made by ``made``.

    Args:
        bucket: whose parameters are on the device.
        own: room for all of them.
        near: the rooms of this rank's parent and children, by rank.
    """

    def __init__(self, bucket: Bucket, own: Tensor, near: dict[int, Tensor]) -> None:
        self._bucket = bucket
        self._comm = bucket.comm
        self._own = own
        self._near = near
        self._parent = parent_of(self._comm.rank)
        self._children = children_of(self._comm.rank, self._comm.size)

    @classmethod
    def made(cls, bucket: Bucket, device: torch.device) -> DeviceTree | None:
        """Return the tree; ``None`` on all ranks if not all can read the others' memory. A collective call."""
        comm = bucket.comm
        if not _on_one_host(comm):
            return None
        elements = sum(parameter.numel() for parameter in bucket.parameters)
        own = torch.full((elements,), float(comm.rank), dtype=bucket.wire, device=device)
        synchronize(device)
        handles = comm.allgather(share(own))
        parent = parent_of(comm.rank)
        ranks = (*children_of(comm.rank, comm.size), *(() if parent is None else (parent,)))
        opened = {rank: open_shared(handles[rank]) for rank in ranks}
        near = {rank: tensor for rank, tensor in opened.items() if tensor is not None}
        readable = len(near) == len(ranks) and all(_holds(tensor, rank) for rank, tensor in near.items())
        return cls(bucket, own, near) if comm.Agree(int(readable)) else None

    def reduce(self) -> None:
        """Sum all gradients into rank 0's memory, for ``unpack_gradients``; a collective call."""
        for parameter, run in self._runs():
            _ = run.zero_() if parameter.grad is None else run.copy_(parameter.grad)
        for child in self._children:
            self._take_turn(child)
            with self._copying(child):
                self._own.add_(self._near[child].to(self._own.device))
                synchronize(self._own.device)
            self._give_turn(child)
        synchronize(self._own.device)
        if self._parent is not None:
            self._serve_readers([self._parent])

    def unpack_gradients(self) -> None:
        """Set the gradients of the parameters to the sums."""
        for parameter, run in self._runs():
            if parameter.grad is None:
                parameter.grad = run.to(parameter.dtype, copy=True)
            else:
                parameter.grad.copy_(run)

    def broadcast(self) -> None:
        """Give all ranks rank 0's weights; a collective call."""
        if self._parent is None:
            for parameter, run in self._runs():
                run.copy_(parameter.detach())
        else:
            self._take_turn(self._parent)
            with self._copying(self._parent):
                self._own.copy_(self._near[self._parent])
                synchronize(self._own.device)
            self._give_turn(self._parent)
            for parameter, run in self._runs():
                parameter.detach().copy_(run)
        synchronize(self._own.device)
        self._serve_readers(tuple(reversed(self._children)))

    def close(self) -> None:
        """Release the others' memory, then this rank's; a collective call."""
        self._near.clear()
        self._comm.Barrier()
        if self._own.device.type == "cuda":
            torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]

    def _runs(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        parameters = self._bucket.parameters
        yield from zip(parameters, unflatten(self._own, parameters), strict=True)

    def _serve_readers(self, readers: Sequence[int]) -> None:
        """Let the other ranks read this rank's memory, and wait until they have read it."""
        for reader in readers:
            with self._comm.events.call(COPY, self._own.nbytes, 0, peer=self._comm.world_ranks[reader]):
                self._give_turn(reader)
        for reader in readers:
            self._take_turn(reader)

    def _copying(self, source: int) -> AbstractContextManager[object]:
        return self._comm.events.call(COPY, 0, self._own.nbytes, peer=self._comm.world_ranks[source])

    def _give_turn(self, rank: int) -> None:
        self._comm.Send(np.zeros(1, np.uint8), rank)

    def _take_turn(self, rank: int) -> None:
        self._comm.Recv(np.zeros(1, np.uint8), rank)


def _on_one_host(comm: Communicator) -> bool:
    host = comm.Split_type_shared()
    alone = host.size == comm.size
    host.Free()
    return alone


def _holds(tensor: Tensor, value: float) -> bool:
    """Return whether the memory can be read and contains what its owner has written."""
    try:
        return bool((tensor == value).all().item())
    except RuntimeError:
        return False
