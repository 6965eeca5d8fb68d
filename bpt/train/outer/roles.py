"""Roles: the ranks that serve and those that compute (BPT-CNN, section 3.2.2); and the facts of a computing node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.system.comm.base import Communicator

SERVER = 0


@dataclass(frozen=True)
class Roles:
    """The roles of the ranks: rank 0 is main server and parameter server, and may be a computing node, too.

    Attributes:
        workers: the rank of each computing node; for a node with several ranks, the first one, its leader.
        rank: this rank.
        stages, shards: numbers of stages and shards of a computing node's net.
        ranks: the number of ranks of a computing node, in order: replicas of stages × shards.
        peers: whether all shards have samples (see FcSpec).
        servers: the number of parameter servers apart from the main server, on the ranks after it; 0: the main server
            holds the weights itself.
    """

    workers: tuple[int, ...]
    rank: int
    stages: int = 1
    shards: int = 1
    ranks: int = 1
    peers: bool = True
    servers: int = 0

    @classmethod
    def of(cls, param: ParallelSpec, world: Communicator) -> Roles:
        """Return the roles in ``world``, which ``violations_of_ranks`` accepts; a single process has both roles."""
        colocated = param.server == pb.ParallelParameter.COLOCATED or world.size == 1
        ranks = param.node_ranks
        first = SERVER + 1 + param.servers + (ranks - 1) * colocated
        assert (world.size - first) % ranks == 0, (world.size, ranks)
        workers = (SERVER,) * colocated + tuple(range(first, world.size, ranks))
        peers = param.fc_param.scheme == pb.FcParameter.PEER
        return cls(workers, world.rank, param.num_stages, param.num_shards, ranks, peers, param.servers)

    @property
    def serves(self) -> bool:
        """Whether this rank is the server."""
        return self.rank == SERVER

    @property
    def worker(self) -> int | None:
        """The number of the worker that this rank is, or belongs to, if it computes."""
        return next((worker for worker in range(len(self.workers)) if self.rank in self.ranks_of(worker)), None)

    @property
    def holds(self) -> bool:
        """Whether this rank is a separate parameter server."""
        return self.rank in self.holders

    @property
    def holders(self) -> range:
        """The ranks of the separate parameter servers."""
        return range(SERVER + 1, SERVER + 1 + self.servers)

    @property
    def leads(self) -> bool:
        """Whether this rank is the first, or only, rank of a worker, which communicates with the server."""
        return self.rank in self.workers

    def ranks_of(self, worker: int) -> tuple[int, ...]:
        """Return the ranks of a worker, its leader first.

        The ranks of the server's own worker follow those of the parameter servers.
        """
        leader = self.workers[worker]
        second = leader + 1 + (self.servers if leader == SERVER else 0)
        return (leader, *range(second, second + self.ranks - 1))

    def readers_of(self, worker: int) -> tuple[int, ...]:
        """Return the worker's ranks that read data: those of the first stages, without slaves."""
        ranks, replica = self.ranks_of(worker), self.stages * self.shards
        each = self.shards if self.peers else 1
        return tuple(ranks[start + shard] for start in range(0, self.ranks, replica) for shard in range(each))

    def place(self, worker: int) -> str:
        """Return the ranks in words: ``rank 3``, or ``ranks 3 to 4``."""
        ranks = self.ranks_of(worker)
        if self.ranks == 1 or ranks[-1] - ranks[0] == self.ranks - 1:
            return f"rank {ranks[0]}" if self.ranks == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        return f"ranks {', '.join(map(str, ranks))}"

    @property
    def node(self) -> str:
        """The kind of a computing node with several ranks: ``pipeline of 3 ranks``, ``grid of 4 ranks: …``."""
        if self.ranks == self.stages:
            return f"pipeline of {self.ranks} ranks"
        return f"grid of {ReplicaLayout.regular(self.ranks, self.stages, self.shards)}"

    @property
    def nodes(self) -> str:
        """The number of computing nodes in words, for a title."""
        each = f" ({self.node.replace(' of', 's of', 1)})" if self.ranks > 1 else ""
        return f"{len(self.workers)} nodes{each}"

    def __str__(self) -> str:
        also = ", which computes as well" if SERVER in self.workers else ""
        if self.servers:
            first, *_, last = *self.holders, self.servers
            also += f", parameter server{'s' * (first < last)} on rank{f's {first} to' * (first < last)} {last}"
        nodes = len(self.workers)
        each = f", {'each ' * (nodes != 1)}a {self.node}" if self.ranks > 1 else ""
        return f"server on rank {SERVER}{also}; {nodes} computing node{'s' * (nodes != 1)}{each}"


@dataclass(frozen=True)
class NodeFacts:
    """The facts of a rank, or of all ranks of a computing node.

    Attributes:
        host: the name of its host; names of several hosts are joined by "+".
        frequency: μ, for the first batch; ``None``: unknown.
        threads: its number of threads.
    """

    host: str
    frequency: float | None
    threads: int

    @classmethod
    def combined(cls, ranks: Sequence[NodeFacts]) -> NodeFacts:
        """Return the facts of a computing node with these ranks, which share its work."""
        return cls(
            "+".join(dict.fromkeys(rank.host for rank in ranks)),
            combined_power([rank.frequency for rank in ranks]),
            sum(rank.threads for rank in ranks),
        )


def combined_power(ranks: Sequence[float | None]) -> float | None:
    """Return the power of a computing node whose ranks have these powers; ``None`` if one is unknown."""
    known = [power for power in ranks if power is not None]
    return sum(known) if len(known) == len(ranks) else None
