"""Whether all ranks are about to do the same: each reads the texts for itself, perhaps on another machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import numpy as np
import torch

import bpt
from bpt.comm.base import Communicator
from bpt.errors import BptError, UserError
from bpt.graph.layer_graph import LayerGraph
from bpt.net import Net
from bpt.plan.digest import net_digest, solver_digest
from bpt.plan.spec import RunPlan
from bpt.state import held_for

T = TypeVar("T")


def facts_of(plan: RunPlan, graph: LayerGraph, *tests: LayerGraph) -> dict[str, str]:
    """What must be equal on all ranks: versions of what computes, and digests of the texts.

    Args:
        graph: the training net.
        tests: the test nets.
    """
    facts = {
        "bpt version": bpt.__version__,
        "torch version": torch.__version__,
        "numpy version": np.__version__,
        "solver text": solver_digest(plan),
        "network text": net_digest(graph),
    }
    return facts | {f"text of test net #{index}": net_digest(test) for index, test in enumerate(tests)}


def data_facts(nets: Mapping[str, Net]) -> dict[str, str]:
    """The size of each data set that ``nets`` read."""
    layers = ((name, layer, source) for name, net in nets.items() for layer, source in net.data_layers().items())
    return {f'the data of layer "{layer}" of {name}': f"{source.epoch} samples" for name, layer, source in layers}


def check_content(world: Communicator, nets: Mapping[str, Net]) -> None:
    """Raise, on all ranks, if two that read the data of one layer read other ones; a collective call.

    A few records of each data set are compared, and not their paths: that takes some ms. Ranks without a layer, and
    those that are sent its records, have no part in it. ``bpt doctor`` looks at more.

    Raises:
        UserError: it names a rank that differs from the first that has the layer, their hosts and files.
    """
    mine = {(net, name): layer.content() for net, built in nets.items() for name, layer in built.data_layers().items()}
    seen: dict[tuple[str, str], tuple[str, int, str, str]] = {}
    for rank, (host, theirs) in enumerate(world.allgather((world.host, mine))):
        for (net, name), (digest, path) in theirs.items():
            if not digest:
                continue
            first, first_rank, first_host, first_path = seen.setdefault((net, name), (digest, rank, host, path))
            if digest != first:
                raise UserError(
                    f"rank {rank} on host {host} reads other data than rank {first_rank} on host {first_host} for "
                    f'layer "{name}" of {net}: the records of {path} there ({digest}) are not those of {first_path} '
                    f"here ({first}); copy the same data to all hosts (bpt doctor compares more of them)"
                )


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


@contextmanager
def held_by_first(plan: RunPlan, world: Communicator) -> Iterator[None]:
    """While the first rank holds the lock on ``snapshot_prefix``; a collective call.

    Raises:
        UserError: a live run has it; all ranks raise it.
    """
    with ExitStack() as stack:
        lock = held_for(plan)
        outcome_of_first(world, None if world.rank else lambda: bool(stack.enter_context(lock)))
        yield


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
