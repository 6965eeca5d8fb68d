"""What all ranks must agree on: facts that must be the same, and the outcome of what one rank does for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from bpt.comm.base import Communicator
from bpt.errors import BptError, UserError

T = TypeVar("T")


def check_same(world: Communicator, facts: Mapping[str, str] | None) -> None:
    """Raise, on all ranks, unless all have the same facts; a collective call.

    Args:
        facts: ``None``: this rank has no part in them.

    Raises:
        UserError: it names a rank that differs from the first, its host, what differs, and what to do.
    """
    everybody = world.allgather((world.host, None if facts is None else dict(facts)))
    first_host, first = everybody[0]
    for rank, (host, theirs) in enumerate(everybody):
        if theirs is None:
            continue
        named = ((name, theirs.get(name, "none"), first.get(name, "none")) for name in {**first, **theirs})
        different = [f"{name} ({has}, not {value})" for name, has, value in named if has != value]
        if different:
            raise UserError(
                f"rank {rank} on host {host} differs from rank 0 on host {first_host} in {', '.join(different)}; "
                "copy the same files and install the same packages on all hosts (bpt doctor shows them)"
            )


def outcome_of_first(world: Communicator, work: Callable[[], T] | None) -> T:
    """What ``work`` returns on rank 0, on all ranks; a collective call.

    Args:
        work: called on the ranks that have some. Ranks but the first may have a part in it, whose result counts for
            nothing; they raise an error only if the first one raises it too.

    Raises:
        BptError: what ``work`` raised on rank 0; all ranks raise the same.
    """
    result: T | None = None
    failure: BptError | None = None
    if work is not None:
        try:
            result = work()
        except BptError as error:
            failure = error
    result, failure = world.bcast((result, failure))
    if failure is not None:
        raise failure
    return result
