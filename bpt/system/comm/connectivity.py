"""A test that every host reaches every other, with a time limit, so that a dead connection does not block it.

It precedes any collective call, which would wait forever where a message does not arrive. This file also makes the
errors of ranks that are lost later.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from bpt.base.errors import LostRankError, RunError
from bpt.system.comm.base import Buffer, Communicator, Request

K = TypeVar("K", bound=Hashable)

SECONDS = 30.0  # the time limit of an answer; all ranks start MPI together, so none is late
_NAME = 64  # the bytes of a host's name
_REMEDY = (
    "open all ports between the hosts, or name the network that they share: "
    "mpirun --mca btl_tcp_if_include eth0 … (ip addr shows the names; not docker0 or virbr0)"
)


def check_connectivity(world: Communicator, seconds: float = SECONDS) -> tuple[str, ...]:
    """Let rank 0 hear from all ranks, then the first ranks of all hosts from each other; a collective call.

    Returns:
        The names of all ranks' hosts, in order of rank.

    Raises:
        RunError: a rank is not reached; on all ranks that can know it. Rank 0's error names it. The ranks can then only
            end together.
    """
    return _lead(world, seconds) if world.rank == 0 else _answer(world, seconds)


def _lead(world: Communicator, seconds: float) -> tuple[str, ...]:
    names = np.zeros((world.size, _NAME), np.uint8)
    names[0] = _as_message(world.host)
    others = range(1, world.size)
    silent = _missing({rank: world.Irecv(names[rank], rank) for rank in others}, seconds)
    if silent:
        raise RunError(f"{_ranks(silent)}: no message reaches rank 0 (host {world.host}) in {seconds:g} s; {_REMEDY}")
    hosts = _as_hosts(names)
    heads = [rank for rank in _heads(hosts) if rank]
    misses = {rank: np.zeros(world.size, np.uint8) for rank in heads}
    messages = {(rank, "to"): world.Isend(names, rank) for rank in others}
    messages |= {(rank, "from"): world.Irecv(misses[rank], rank) for rank in heads}
    silent = sorted({rank for rank, _ in _missing(messages, 2 * seconds)})
    if silent:
        on = ", ".join(dict.fromkeys(hosts[rank] for rank in silent))
        raise RunError(f"{_ranks(silent)} (host {on}): no longer in touch with rank 0 (host {world.host}); {_REMEDY}")
    lost = {(min(rank, other), max(rank, other)) for rank in heads for other in map(int, np.flatnonzero(misses[rank]))}
    verdict = np.array([not lost], np.uint8)
    _missing({rank: world.Isend(verdict, rank) for rank in others}, seconds)
    if lost:
        who = ", ".join(f"{hosts[one]} and {hosts[other]}" for one, other in sorted(lost))
        raise RunError(f"no message passes between the hosts {who}, though all reach host {world.host}; {_REMEDY}")
    return hosts


def _answer(world: Communicator, seconds: float) -> tuple[str, ...]:
    names, verdict = np.zeros((world.size, _NAME), np.uint8), np.zeros(1, np.uint8)
    name = _as_message(world.host)
    silent = _missing({"to": world.Isend(name, 0), "from": world.Irecv(names, 0)}, 2 * seconds)
    hosts = _as_hosts(names)
    if not silent and world.rank in _heads(hosts):
        misses = _meet(world, [rank for rank in _heads(hosts) if rank not in (0, world.rank)], seconds)
        silent = _missing({"to": world.Isend(misses, 0)}, seconds)
    if silent or _missing({"from": world.Irecv(verdict, 0)}, 4 * seconds):
        raise RunError(f"rank 0 does not answer rank {world.rank} (host {world.host}); {_REMEDY}")
    if not verdict[0]:
        raise RunError("the hosts do not reach each other; rank 0 knows which")
    return hosts


def _meet(world: Communicator, others: Sequence[int], seconds: float) -> Buffer:
    """Exchange a byte with each of ``others``, which do the same; return 1 for each rank where that fails."""
    token, received = np.zeros(1, np.uint8), np.zeros((world.size, 1), np.uint8)
    messages = {(rank, "from"): world.Irecv(received[rank], rank, tag=1) for rank in others}
    messages |= {(rank, "to"): world.Isend(token, rank, tag=1) for rank in others}
    misses = np.zeros(world.size, np.uint8)
    misses[[rank for rank, _ in _missing(messages, seconds)]] = 1
    return misses


def _missing(requests: Mapping[K, Request], seconds: float) -> list[K]:
    """Return the keys of the requests that are not done after this number of seconds."""
    waiting = dict(requests)
    deadline = time.monotonic() + seconds
    while True:
        waiting = {key: request for key, request in waiting.items() if not request.Test()}
        if not waiting or time.monotonic() > deadline:
            return list(waiting)
        time.sleep(0.0005)


def _heads(hosts: Sequence[str]) -> list[int]:
    """Return the first rank of each host."""
    return sorted({host: rank for rank, host in reversed(list(enumerate(hosts)))}.values())


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _as_message(host: str) -> Buffer:
    """Return a host's name, in fixed length."""
    padded = host.encode("ascii", "replace")[:_NAME].ljust(_NAME, b"\0")
    return np.array(list(padded), np.uint8)


def _as_hosts(names: Buffer) -> tuple[str, ...]:
    return tuple(name.tobytes().rstrip(b"\0").decode("ascii") for name in names)


def lost_rank_error(method: str, ranks: Sequence[int], names: Sequence[str]) -> LostRankError:
    """Return the error of a call that can no longer be completed.

    Args:
        method: the call that noticed it.
        ranks: the lost ranks of the communicator; empty if unknown.
        names: the names of the ranks.
    """
    be, they, their, were = ("are", "they", "their", "were") if len(names) > 1 else ("is", "it", "its", "was")
    return LostRankError(
        f"{' and '.join(names) or 'another rank'} {be} gone (noticed in {method}): {they} {were} killed, ran out of "
        f"memory, or {their} machine or network failed. Start again; --snapshot auto continues from the newest "
        "snapshot",
        ranks,
    )


def name_of(rank: int, host: str) -> str:
    """Return the name of a rank of the world, for a message."""
    return f"rank {rank} (host {host})"
