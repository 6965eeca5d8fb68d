"""Agreement of all ranks: on facts that must be equal, and on the outcome of one rank's work for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from bpt.base.errors import BptError, UserError
from bpt.system.comm.base import Communicator

T = TypeVar("T")


def check_same(world: Communicator, facts: Mapping[str, str] | None) -> None:
    """Raise, on all ranks, unless all have the same facts; a collective call.

    Args:
        facts: the facts of this rank; ``None`` if it takes no part.

    Raises:
        UserError: it names a rank that differs from the first, its host, the difference, and a remedy.
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
    """Return the result of ``work`` on rank 0, on all ranks; a collective call.

    Args:
        work: called on the ranks that have it. The result of other ranks than the first is ignored. They raise an error
            only if the first one raises it, too.

    Raises:
        BptError: the error of ``work`` on rank 0; all ranks raise the same.
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
