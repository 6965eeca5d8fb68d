"""Python objects as messages with their length and digest.

When a rank dies in a library's collective, this may return without an error, with the old contents of the buffer. Here
each rank waits for each message itself, so it notices a lost rank. The digest shows that a message is the one that was
sent.
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
FIRST = 1024  # bytes of an object's first message; a short object needs no second one


class DamagedObjectError(Exception):
    """An error: the received message is not the object that was sent."""


def allgather_objects(comm: Messages, value: Any) -> list[Any]:
    """Return the ``value`` of every rank, in order of rank; a collective call.

    Args:
        comm: the ranks; nobody else may send messages with its tag here meanwhile.

    Raises:
        DamagedObjectError: the received message is not the sent one.
    """
    first, rest = _packed(value)
    firsts = np.zeros((comm.size, FIRST), np.uint8)
    transfer(comm, dict.fromkeys(range(comm.size), first), dict(enumerate(firsts)))
    rests = [np.zeros(_rest_of(each), np.uint8) for each in firsts]
    transfer(comm, dict.fromkeys(range(comm.size), rest), dict(enumerate(rests)))
    return [_unpacked(*each) for each in zip(firsts, rests, strict=True)]


def bcast_object(comm: Messages, value: Any) -> Any:
    """Return the ``value`` of rank 0 on all ranks; a collective call.

    Arguments and errors are those of ``allgather_objects``.
    """
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
    """Return the first message, which has the object's length, and the rest, which may be empty."""
    content = np.frombuffer(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), np.uint8)
    first = np.zeros(FIRST, np.uint8)
    head = first[: _HEAD.itemsize].view(_HEAD)
    head["magic"], head["length"], head["digest"] = _MAGIC, content.size, np.void(_digest(content))
    inside = min(content.size, FIRST - _HEAD.itemsize)
    first[_HEAD.itemsize :][:inside] = content[:inside]
    return first, content[inside:]


def _rest_of(first: Buffer) -> int:
    """Return how many bytes of the object follow its first message."""
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
