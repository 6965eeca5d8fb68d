"""Whether all ranks are about to do the same: each reads the texts for itself, perhaps on another machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import numpy as np
import torch

from bpt.comm.agreement import outcome_of_first
from bpt.comm.base import Communicator
from bpt.errors import UserError
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.net_digest import net_digest
from bpt.net import Net
from bpt.plan.spec import RunPlan
from bpt.state import held_for
from bpt.version import VERSION

T = TypeVar("T")


def solver_digest(plan: RunPlan) -> str:
    """16 hexadecimal digits that tell a solver's text, with all that was laid over it, from any other.

    Where files lie and which device computes may differ from host to host, and does not count.
    """
    return hashlib.blake2b(plan.shared_text.encode(), digest_size=8).hexdigest()


def facts_of(plan: RunPlan, graph: LayerGraph, *tests: LayerGraph) -> dict[str, str]:
    """What must be equal on all ranks: versions of what computes, and digests of the texts.

    Args:
        graph: the training net.
        tests: the test nets.
    """
    facts = {
        "bpt version": VERSION,
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
