"""Python objects as messages that carry their length and digest.

A library's collectives may return without an error, and with what the buffer held before, when a rank dies in them.
Here each rank waits for each message by itself, so a rank that is lost is noticed, and the digest shows that a message
is the one that was sent.
"""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import numpy as np

from bpt.system.comm.base import Buffer
from bpt.system.comm.pieces import Messages, transfer
from bpt.system.comm.tree_collectives import tree_bcast

_MAGIC = 0x62707431
_HEAD = np.dtype([("magic", np.int64), ("length", np.int64), ("digest", "V16")])
FIRST = 1024  # bytes of the first message of an object: a short object needs no second one


class DamagedObjectError(Exception):
    """A message is not the object that was sent."""


def allgather_objects(comm: Messages, value: Any) -> list[Any]:
    """Return the ``value`` of every rank, in order of rank; a collective call.

    Args:
        comm: nobody else may send messages with its tag here meanwhile.

    Raises:
        DamagedObjectError: what has come is not what was sent.
    """
    first, rest = _packed(value)
    firsts = np.zeros((comm.size, FIRST), np.uint8)
    transfer(comm, dict.fromkeys(range(comm.size), first), dict(enumerate(firsts)))
    rests = [np.zeros(_rest_of(each), np.uint8) for each in firsts]
    transfer(comm, dict.fromkeys(range(comm.size), rest), dict(enumerate(rests)))
    return [_unpacked(*each) for each in zip(firsts, rests, strict=True)]


def bcast_object(comm: Messages, value: Any) -> Any:
    """Return the ``value`` of rank 0 on all ranks; a collective call. See ``allgather_objects`` for the rest."""
    if comm.rank == 0:
        first, rest = _packed(value)
        tree_bcast(comm, first)
    else:
        first = np.zeros(FIRST, np.uint8)
        tree_bcast(comm, first)
        rest = np.zeros(_rest_of(first), np.uint8)
    tree_bcast(comm, rest)
    return value if comm.rank == 0 else _unpacked(first, rest)


def _packed(value: Any) -> tuple[Buffer, Buffer]:
    """Return the first message, which says how long the object is, and the rest, which may be empty."""
    content = np.frombuffer(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), np.uint8)
    first = np.zeros(FIRST, np.uint8)
    head = first[: _HEAD.itemsize].view(_HEAD)
    head["magic"], head["length"], head["digest"] = _MAGIC, content.size, np.void(_digest(content))
    inside = min(content.size, FIRST - _HEAD.itemsize)
    first[_HEAD.itemsize :][:inside] = content[:inside]
    return first, content[inside:]


def _rest_of(first: Buffer) -> int:
    """Return how many bytes of the object come after its first message."""
    head = first[: _HEAD.itemsize].view(_HEAD)[0]
    if head["magic"] != _MAGIC or head["length"] <= 0:
        raise DamagedObjectError
    return max(0, int(head["length"]) - (FIRST - _HEAD.itemsize))


def _unpacked(first: Buffer, rest: Buffer) -> Any:
    head = first[: _HEAD.itemsize].view(_HEAD)[0]
    inside = first[_HEAD.itemsize :][: int(head["length"])]
    content = np.concatenate([inside, rest]) if rest.size else inside
    if content.size != head["length"] or bytes(head["digest"]) != _digest(content):
        raise DamagedObjectError
    return pickle.loads(content.tobytes())


def _digest(content: Buffer) -> bytes:
    return hashlib.blake2b(content.data, digest_size=16).digest()
