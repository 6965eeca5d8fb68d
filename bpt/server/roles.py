"""Roles: which rank serves and which compute (BPT-CNN, section 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.comm.base import Communicator
from bpt.plan.spec import ParallelSpec
from bpt.proto import bpt_pb2 as pb

SERVER = 0


@dataclass(frozen=True)
class Roles:
    """The main server and the parameter server are on rank 0; it may be a computing node as well.

    Attributes:
        workers: the rank of each computing node; of a pipeline that of its first stage, its leader.
        rank: this one.
        stages: ranks of a computing node: 1, or the stages of the pipeline that it is, one rank behind the other.
    """

    workers: tuple[int, ...]
    rank: int
    stages: int = 1

    @classmethod
    def of(cls, param: ParallelSpec, world: Communicator) -> Roles:
        """The roles in ``world``, which has passed ``check_ranks``; a process that is alone has both."""
        colocated = param.server == pb.ParallelParameter.COLOCATED or world.size == 1
        first = SERVER if colocated else SERVER + 1
        assert (world.size - first) % param.num_stages == 0, (world.size, param.num_stages)
        return cls(tuple(range(first, world.size, param.num_stages)), world.rank, param.num_stages)

    @property
    def serves(self) -> bool:
        """Whether this rank is the server."""
        return self.rank == SERVER

    @property
    def worker(self) -> int | None:
        """The number of the worker that this rank is, or is a stage of, if it computes."""
        before = self.rank - self.workers[0]
        return before // self.stages if before >= 0 else None

    @property
    def leads(self) -> bool:
        """Whether this rank is a worker, or its first stage: it talks with the server."""
        return self.rank in self.workers

    def ranks_of(self, worker: int) -> range:
        """The ranks of a worker, that of its first stage first."""
        return range(self.workers[worker], self.workers[worker] + self.stages)

    def place(self, worker: int) -> str:
        """``rank 3``, or ``ranks 3 to 4`` of a pipeline."""
        ranks = self.ranks_of(worker)
        return f"rank {ranks[0]}" if self.stages == 1 else f"ranks {ranks[0]} to {ranks[-1]}"

    @property
    def nodes(self) -> str:
        """How many computing nodes there are, for a title."""
        each = f" (pipelines of {self.stages} ranks)" if self.stages > 1 else ""
        return f"{len(self.workers)} nodes{each}"

    def __str__(self) -> str:
        also = ", which computes as well" if SERVER in self.workers else ""
        nodes = len(self.workers)
        each = f", {'each ' * (nodes != 1)}a pipeline of {self.stages} ranks" if self.stages > 1 else ""
        return f"server on rank {SERVER}{also}; {nodes} computing node{'s' * (nodes != 1)}{each}"
