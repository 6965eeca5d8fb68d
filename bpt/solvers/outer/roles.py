"""Roles: which rank serves and which compute (BPT-CNN, section 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.comm.base import Communicator
from bpt.proto import bpt_pb2 as pb

SERVER = 0


@dataclass(frozen=True)
class Roles:
    """The main server and the parameter server are on rank 0; it may be a computing node as well.

    Attributes:
        workers: the rank of each computing node.
        rank: this one.
    """

    workers: tuple[int, ...]
    rank: int

    @classmethod
    def of(cls, param: pb.ParallelParameter, world: Communicator) -> Roles:
        """The roles in ``world``; a process that is alone has both."""
        colocated = param.server == pb.ParallelParameter.COLOCATED or world.size == 1
        return cls(tuple(range(SERVER if colocated else SERVER + 1, world.size)), world.rank)

    @property
    def serves(self) -> bool:
        """Whether this rank is the server."""
        return self.rank == SERVER

    @property
    def worker(self) -> int | None:
        """The number of the worker on this rank, if there is one."""
        return self.workers.index(self.rank) if self.rank in self.workers else None

    def __str__(self) -> str:
        also = ", which computes as well" if SERVER in self.workers else ""
        nodes = len(self.workers)
        return f"server on rank {SERVER}{also}; {nodes} computing node{'s' * (nodes != 1)}"
