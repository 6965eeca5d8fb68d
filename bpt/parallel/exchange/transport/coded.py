"""Sums over ranks whose parts travel as codes: bytes that stand for numbers, and not quite for all of them.

MPI adds numbers, not codes, so these are made of messages. In each of the three every rank encodes each element exactly
once: a part of its own, or a sum that it has made. What that code does not tell is *lost* there, and nowhere else. So

    what all ranks have lost  =  the exact sum  -  the sum that came out,

and who adds what it has lost to its next values (error feedback, Karimireddy et al. 2019) loses nothing for good. The
bytes are those of the sum without a code, with a code's bytes in the place of a number's. All ranks that get the sum
get the same bits: they decode the same bytes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from bpt.system.comm.base import Communicator
from bpt.system.comm.tree_collectives import children_of, parent_of


class Code(Protocol):
    """A way to write numbers as bytes; all tensors are flat and on the host."""

    def size(self, like: Tensor) -> int:
        """Return the bytes of the code of as many numbers as ``like`` has, of its type."""

    def bytes_each(self, itemsize: int) -> float:
        """Return the bytes for each of many numbers of ``itemsize`` bytes: ``size`` without rounding."""

    def encode(self, values: Tensor) -> Tensor:
        """Return the code, (bytes,) of uint8."""

    def decode(self, code: Tensor, like: Tensor) -> Tensor:
        """Return the numbers that ``code`` stands for, as many as ``like`` has and of its type.

        The same bits everywhere.
        """


def allreduce(comm: Communicator, values: Tensor, lost: Tensor, code: Code) -> None:
    """Set ``values`` on all ranks to their sum, by the library's Alltoallv and Allgatherv.

    Each rank gets the others' codes of one of P pieces, adds them and its own numbers in order of rank, and lets all
    have the code of the sum (as DoubleSqueeze, Tang et al. 2019).

    Args:
        comm: the ranks; nobody else uses it meanwhile.
        values: this rank's; flat, on the host.
        lost: becomes what this rank's codes have not told of what they stand for.
        code: the same on all ranks.
    """
    pieces, rests = _cut(values, comm.size), _cut(lost, comm.size)
    sizes = [code.size(piece) for piece in pieces]
    mine = comm.rank
    nothing = torch.empty(0, dtype=torch.uint8)
    parts = [
        nothing if rank == mine else _encoded(code, piece, rest)
        for rank, (piece, rest) in enumerate(zip(pieces, rests, strict=True))
    ]
    counts = [0 if rank == mine else sizes[mine] for rank in range(comm.size)]
    received = torch.empty(sum(counts), dtype=torch.uint8)
    comm.Alltoallv(torch.cat(parts).numpy(), [part.numel() for part in parts], received.numpy(), counts)
    total = torch.zeros_like(pieces[mine])
    for rank, part in enumerate(torch.split(received, counts)):
        total += pieces[mine] if rank == mine else code.decode(part, total)
    own = _encoded(code, total, rests[mine])
    sums = torch.empty(sum(sizes), dtype=torch.uint8)
    comm.Allgatherv(own.numpy(), sums.numpy(), sizes)
    for piece, part in zip(pieces, torch.split(sums, sizes), strict=True):
        piece.copy_(code.decode(part, piece))


def ring_allreduce(comm: Communicator, values: Tensor, lost: Tensor, code: Code) -> None:
    """Sum ``values`` round a ring by the steps of ``ring_reduction``, in messages with tag 0 between neighbours."""
    pieces, rests = _cut(values, comm.size), _cut(lost, comm.size)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def swapped(sent: Tensor, size: int) -> Tensor:
        received = torch.empty(size, dtype=torch.uint8)
        coming = comm.Irecv(received.numpy(), left)
        going = comm.Isend(sent.numpy(), right)
        coming.Wait()
        going.Wait()
        return received

    for step in range(comm.size - 1):
        place, behind = (comm.rank - step) % comm.size, (comm.rank - step - 1) % comm.size
        part = swapped(_encoded(code, pieces[place], rests[place]), code.size(pieces[behind]))
        pieces[behind] += code.decode(part, pieces[behind])
    place = (comm.rank + 1) % comm.size  # is complete here
    part = _encoded(code, pieces[place], rests[place])
    for step in range(comm.size):
        pieces[place].copy_(code.decode(part, pieces[place]))
        if step + 1 < comm.size:
            place = (place - 1) % comm.size
            part = swapped(part, code.size(pieces[place]))


def tree_reduce(comm: Communicator, values: Tensor, lost: Tensor, code: Code) -> None:
    """Set the ``values`` of rank 0 to the sum, along the tree of ``tree_collectives``, in messages with tag 0.

    A rank sends its parent the code of what it and its children have; rank 0 loses nothing.
    """
    children, parent = children_of(comm.rank, comm.size), parent_of(comm.rank)
    parts = [torch.empty(code.size(values), dtype=torch.uint8) for _ in children]
    coming = [comm.Irecv(part.numpy(), child) for part, child in zip(parts, children, strict=True)]
    for part, request in zip(parts, coming, strict=True):
        request.Wait()
        values += code.decode(part, values)
    if parent is None:
        lost.zero_()
    else:
        comm.Send(_encoded(code, values, lost).numpy(), parent)


def _cut(values: Tensor, pieces: int) -> list[Tensor]:
    bounds = [values.numel() * piece // pieces for piece in range(pieces + 1)]
    return [values[first:last] for first, last in pairwise(bounds)]


def _encoded(code: Code, values: Tensor, lost: Tensor) -> Tensor:
    """Return the code of ``values``; ``lost`` becomes what the code leaves out."""
    made = code.encode(values)
    torch.sub(values, code.decode(made, values), out=lost)
    return made
