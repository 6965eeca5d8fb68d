"""Checks that all ranks have the same texts, libraries and data, because each rank reads them itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import numpy as np
import torch

from bpt.base.errors import UserError
from bpt.base.version import VERSION
from bpt.config.plan.run_plan import RunPlan
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.net_digest import net_digest
from bpt.nn.net import Net
from bpt.system.comm.agreement import outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.train.state import held_for

T = TypeVar("T")


def solver_digest(plan: RunPlan) -> str:
    """Return 16 hexadecimal digits that identify a solver's text with its overrides.

    Paths and devices do not count, because they may differ between hosts.
    """
    return hashlib.blake2b(plan.shared_text.encode(), digest_size=8).hexdigest()


def facts_of(plan: RunPlan, graph: LayerGraph, *tests: LayerGraph) -> dict[str, str]:
    """Return the facts that must be equal on all ranks: versions of libraries, and digests of the texts.

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
    """Return the size of each data set that ``nets`` read."""
    layers = ((name, layer, source) for name, net in nets.items() for layer, source in net.data_layers().items())
    return {f'the data of layer "{layer}" of {name}': f"{source.epoch} samples" for name, layer, source in layers}


def check_content(world: Communicator, nets: Mapping[str, Net]) -> None:
    """Raise an error on all ranks if two of them read different data for a layer; a collective call.

    It compares a few records of each data set, and not the paths, in some milliseconds. Ranks without the layer, and
    those that receive its records, do not count. ``bpt doctor`` compares more.

    Raises:
        UserError: a rank differs from the first one with the layer; the message names both, their hosts and files.
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
    """Hold the lock on ``snapshot_prefix`` on the first rank during the block; a collective call.

    Raises:
        UserError: a live run has the lock; all ranks raise it.
    """
    with ExitStack() as stack:
        lock = held_for(plan)
        outcome_of_first(world, None if world.rank else lambda: bool(stack.enter_context(lock)))
        yield
