"""Measures messages between ranks: ping-pong of single pairs and of several at once, and an Allreduce of all ranks.

Latency is half the median time of a round trip of 8 bytes. Bandwidth is measured by round trips of messages that are as
large as the time of the pair allows.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from bpt.system.comm.base import Communicator

SECONDS = 1.5  # time for all pairs together
_PAIR = 0.3  # largest time for a pair in seconds
_FEW = 4  # number of ranks up to which all pairs are measured
_SMALL, _FIRST, _LARGEST = 8, 2**16, 2**23  # bytes of messages
AS_ALONE = 0.8  # links are shared if a pair has less than this fraction of its bandwidth while others send
ALLREDUCE = 4 * 10**6  # bytes, of float32


@dataclass(frozen=True)
class MeasuredLink:
    """The link between two ranks: ``latency`` in seconds, ``bandwidth`` in bytes a second."""

    one: int
    other: int
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class MeasuredLinks:
    """The measured links.

    Attributes:
        links: the links between pairs of ranks.
        allreduce: seconds for each byte of a long Allreduce of all ranks.
        shared: common bandwidth, in bytes a second, of pairs of hosts that send at once; infinite: each pair has its
            full bandwidth, or there are fewer than four hosts.
    """

    links: tuple[MeasuredLink, ...]
    allreduce: float
    shared: float = math.inf

    @property
    def latency(self) -> float:
        """The largest latency of a pair; 0 if there is none."""
        return max((link.latency for link in self.links), default=0.0)


def measure(world: Communicator, hosts: Sequence[str], seconds: float = SECONDS) -> MeasuredLinks:
    """Measure the links for about ``seconds``; a collective call.

    Args:
        hosts: the host of each rank.
        seconds: time for all links together.
    """
    own = []
    chosen = pairs(hosts)
    for one, other in chosen:
        world.Barrier()
        if world.rank == one:
            own.append(MeasuredLink(one, other, *_ping(world, other, min(_PAIR, seconds / len(chosen)))))
        elif world.rank == other:
            _pong(world, one)
    found = sorted((link for links in world.allgather(own) for link in links), key=lambda link: (link.one, link.other))
    shared = _shared(world, [ranks[0] for ranks in members(hosts).values()], min(_PAIR, seconds))
    return MeasuredLinks(tuple(found), _time_allreduce(world) if world.size > 1 else 0.0, shared)


def pairs(hosts: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of ranks to measure.

    With few ranks these are all pairs. With many ranks they are rank 0 with another rank of its host, and pairs of the
    hosts' first ranks: all of them with few hosts, else those with rank 0.
    """
    size, by_host = len(hosts), members(hosts)
    if size <= _FEW:
        return list(combinations(range(size), 2))
    heads = [ranks[0] for ranks in by_host.values()]
    chosen = list(combinations(heads, 2)) if len(heads) <= _FEW else [(0, head) for head in heads[1:]]
    return sorted({*chosen, *((0, rank) for rank in by_host[hosts[0]][1:2])})


def members(hosts: Sequence[str]) -> dict[str, list[int]]:
    """Return the ranks of each host; hosts and ranks are in the order of ranks."""
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return found


def _shared(world: Communicator, heads: Sequence[int], seconds: float) -> float:
    """Measure two pairs of ``heads`` alone, then disjoint pairs at once; return ``MeasuredLinks.shared``."""
    disjoint = list(zip(heads[::2], heads[1::2], strict=False))
    if len(disjoint) < 2:
        return math.inf
    alone = [_bandwidths(world, [pair], seconds) for pair in disjoint[:2]]
    together = _bandwidths(world, disjoint, seconds)
    return shared_by(together, [bandwidth for (bandwidth,) in alone])


def shared_by(together: Sequence[float], alone: Sequence[float]) -> float:
    """Return the common bandwidth of pairs.

    Args:
        together: the bandwidth of each pair while all send at once.
        alone: the bandwidth of some pairs without the others.
    """
    is_shared = statistics.fmean(together) < AS_ALONE * statistics.fmean(alone)
    return math.fsum(together) if is_shared else math.inf


def _bandwidths(world: Communicator, chosen: Sequence[tuple[int, int]], seconds: float) -> list[float]:
    """Return the bytes a second of each chosen pair while all send at once; a collective call."""
    world.Barrier()
    own = None
    for one, other in chosen:
        if world.rank == one:
            own = _ping(world, other, seconds)[1]
        elif world.rank == other:
            _pong(world, one)
    return [found for found in world.allgather(own) if found is not None]


def _ping(comm: Communicator, other: int, seconds: float) -> tuple[float, float]:
    """Return the latency and the bandwidth of the link to ``other``, which calls ``_pong``."""
    latency = _round_trips(comm, other, _SMALL, seconds / 3, fewest=10, most=1000) / 2
    first = _round_trips(comm, other, _FIRST, 0.0, fewest=2, most=2)
    nbytes = int(np.clip(_FIRST * seconds / 8 / first, _FIRST, _LARGEST))
    round_trip = _round_trips(comm, other, nbytes, seconds / 2, fewest=3, most=20)
    comm.Send(np.zeros(1, np.int64), other)
    return latency, nbytes / (round_trip / 2)


def _pong(comm: Communicator, other: int) -> None:
    """Send messages back until their size is 0; a message whose first byte is 0 is the last one of its size."""
    nbytes = np.zeros(1, np.int64)
    while True:
        comm.Recv(nbytes, other)
        if not nbytes[0]:
            return
        message: NDArray[np.uint8] = np.ones(int(nbytes[0]), np.uint8)
        while message[0]:
            comm.Recv(message, other)
            comm.Send(message, other)


def _round_trips(comm: Communicator, other: int, nbytes: int, seconds: float, fewest: int, most: int) -> float:
    """Return the median seconds of round trips, without the first one."""
    comm.Send(np.array([nbytes], np.int64), other)
    message: NDArray[np.uint8] = np.ones(nbytes, np.uint8)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while message[0]:
        if len(times) >= most or (len(times) >= fewest and time.perf_counter() > end):
            message[0] = 0
        start = time.perf_counter()
        comm.Send(message, other)
        comm.Recv(message, other)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _time_allreduce(comm: Communicator, seconds: float = 0.3) -> float:
    """Return the median seconds for each byte of an Allreduce; a collective call."""
    numbers = np.zeros(ALLREDUCE // np.dtype(np.float32).itemsize, np.float32)
    times: list[float] = []
    wanted = 2  # rank 0 decides for all ranks
    while len(times) < wanted:
        comm.Barrier()
        start = time.perf_counter()
        comm.Allreduce(numbers)
        times.append(time.perf_counter() - start)
        if len(times) == 1:
            wanted = comm.bcast(2 + int(min(8.0, seconds / times[0])))
    return float(comm.bcast(statistics.median(times[1:]))) / numbers.nbytes
