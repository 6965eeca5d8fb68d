"""Objects as messages with a length and a digest: whole ones arrive, and damaged ones are never taken for a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bpt.system.comm.base import Buffer, Communicator
from bpt.system.comm.objects import FIRST, DamagedObjectError, _packed, _unpacked, allgather_objects, bcast_object
from tests.support.doubles.thread_ranks import run_ranks

VALUES = [None, 2.5, ("a", {"b": [1]}), "x" * FIRST, bytes(FIRST - 60), np.arange(1000).tolist()]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_get_the_value_of_each(size: int) -> None:
    """Of objects of other lengths on each rank, some of which need a second message."""

    def run(comm: Communicator) -> None:
        for shift in range(len(VALUES)):
            values = [VALUES[(rank + shift) % len(VALUES)] for rank in range(size)]
            assert allgather_objects(comm, values[comm.rank]) == values
            assert bcast_object(comm, values[0] if comm.rank == 0 else None) == values[0]

    run_ranks(size, run)


def damages(first: Buffer, rest: Buffer) -> dict[str, tuple[Buffer, Buffer]]:
    """What a message may be when its sender has died."""
    turned, longer, late = first.copy(), first.copy(), rest.copy()
    turned[40] ^= 1
    longer[8] ^= 8  # its length
    late[-1:] ^= 1
    return {
        "nothing came": (np.zeros_like(first), rest),
        "what a buffer held before": (np.full_like(first, 255), rest),
        "another bit": (turned, rest),
        "another length": (longer, rest),
        "another end": (first, late),
        "no rest": (first, np.zeros_like(rest)),
    }


@pytest.mark.parametrize("damage", list(damages(np.zeros(FIRST, np.uint8), np.zeros(9, np.uint8))))
def test_what_is_damaged_is_no_value(damage: str) -> None:
    first, rest = _packed(list(range(10**4)))
    assert rest.size and _unpacked(first, rest) == list(range(10**4))
    got = damages(first, rest)[damage]
    with pytest.raises(DamagedObjectError):
        _unpacked(*got)


def test_a_short_object_is_one_message() -> None:
    value: Any = (1, "two")
    first, rest = _packed(value)
    assert first.size == FIRST and not rest.size and _unpacked(first, rest) == value
