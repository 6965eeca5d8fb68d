"""The balance of a run: shares from a profile of measured speeds, if it is of this run, and what became of them."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Collection, Sequence

import torch

from bpt.base.errors import FileError
from bpt.base.log import log_lines
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import resolve_path
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.staging import Staging
from bpt.nn.layers.base import batch_of
from bpt.parallel.balance import Static
from bpt.parallel.balance.balance_rules import is_by_iteration
from bpt.parallel.balance.batch_shares import lines
from bpt.parallel.balance.divided_net import Division
from bpt.parallel.balance.shared_batch import SharedBatch
from bpt.parallel.model_parallel.model_parallel import split_layers
from bpt.system.comm.agreement import outcome_of_first
from bpt.system.comm.grid import ProcessGrid
from bpt.system.events.totals import Totals, total_busy_seconds

LOG = logging.getLogger("bpt")


def static_balance(
    plan: RunPlan, graph: LayerGraph, grid: ProcessGrid, device: torch.device, staging: Staging | None = None
) -> Static:
    """Return the STATIC balance by the profile that the solver names. A collective call; only the first rank reads it.

    Args:
        staging: which stage runs which layers, if there are several.

    Raises:
        FileError: the profile is missing or damaged, or was not measured for this run; it says what differs.
    """
    # Only what this run needs; see docs/architecture.md.
    from bpt.parallel.balance.profile import (  # noqa: PLC0415
        Profile,
        check,
        check_spares,
        other_threads,
        read_profile,
        remedy,
        static_from,
    )
    from bpt.parallel.balance.rank_facts import facts  # noqa: PLC0415

    path = resolve_path(plan.parallel_param.balance_param.profile, plan.path)
    now = facts(plan, graph, device, grid.world)

    def read() -> Profile:
        if not os.path.exists(path):
            raise FileError(
                path, f"cannot be read: {os.strerror(errno.ENOENT)}. {remedy(path, plan.path, grid.world.size)}"
            )
        profile = read_profile(path)
        spares = plan.parallel_param.fault_param.spares if grid.world.has_lost_ranks else 0
        if tuple(grid.world.world_ranks) == tuple(range(grid.world.size)):  # none is lost yet
            check_spares(profile, grid.world.size, spares, path, plan.path)
        if grid.world.has_lost_ranks:
            profile = profile.of_ranks(grid.world.world_ranks)
        check(profile, now, path, plan.path)
        if is_by_iteration(plan) and not profile.exchanges:
            raise FileError(
                path,
                "has no times of segments and exchanges, which balance_param { by: ITERATION } needs. "
                f"{remedy(path, plan.path, grid.world.size)}",
            )
        if threads := other_threads(profile, now):
            LOG.warning(
                "Balance: %s was measured with other threads: %s. Times are taken to go down as threads go up. %s",
                path, threads, remedy(path, plan.path, grid.world.size),
            )  # fmt: skip
        return profile

    profile = outcome_of_first(grid.world, None if grid.world.rank else read)
    return static_from(profile, division_of(plan, graph, grid, staging), now, is_by_iteration(plan))


def division_of(plan: RunPlan, graph: LayerGraph, grid: ProcessGrid, staging: Staging | None = None) -> Division:
    """Return how the ranks divide the training net.

    Args:
        staging: which stage runs which layers; without it all stages count alike.
    """
    masters = plan.parallel_param.fc_param.scheme == pb.FcParameter.MASTER_SLAVE
    of_kinds = (staging.of_kinds or (staging.of_layers,)) if staging else (None,) * len(grid.layout.kinds)
    split_nodes = {node.index for node in split_layers(graph)} if grid.shards > 1 else set()
    kinds = list(zip(grid.layout.kinds, of_kinds, strict=True))
    parts = [
        _parts(graph, stages, of_layers, range(len(graph))) or [1 / stages] * stages for stages, of_layers in kinds
    ]
    split = [_parts(graph, stages, of_layers, split_nodes) or [0.0] * stages for stages, of_layers in kinds]
    return Division(grid.layout, parts, split, masters)


def _parts(
    graph: LayerGraph, stages: int, of_layers: Sequence[int] | None, counted: Collection[int]
) -> list[float] | None:
    """Return the part of the net's operations of each stage in the counted layers; ``None`` if they have none."""
    parts, whole = [0.0] * stages, sum(node.flops for node in graph.nodes) or 1
    for node in graph.nodes:
        where = range(stages) if of_layers is None else (of_layers[node.index],)
        for stage in where if node.index in counted else ():
            parts[stage] += node.flops / whole / len(where)
    return parts if any(parts) else None


class LoadBalanceReport:
    """Compares how long each rank is predicted to compute for its share of a batch with how long it does.

    Logs the shares and the predictions when it is made; a collective call, like ``log``.
    """

    def __init__(self, parallel: SharedBatch, graph: LayerGraph) -> None:
        self._parallel = parallel
        self._batch = batch_of(graph)
        self._totals = Totals()
        self._from = 0
        self._log(None)
        balance = parallel.balance
        if isinstance(balance, Static) and self._batch:
            for line in balance.remarks(parallel.shares(self._batch)):
                LOG.warning("Balance: %s", line)

    def start(self, iteration: int) -> None:
        """Forget what was seen before ``iteration``."""
        events = self._parallel.grid.world.events
        events.remove(self._totals)
        self._from = iteration
        if self._is_shown:
            self._totals = events.add(Totals())

    def log(self, iteration: int) -> None:
        """Log what was seen until ``iteration``."""
        self._parallel.grid.world.events.remove(self._totals)
        if iteration > self._from:
            self._log(total_busy_seconds(self._totals.take()) / (iteration - self._from))

    @property
    def _is_shown(self) -> bool:
        parallel = self._parallel
        # Unlike replicas compare their first stages.
        together = parallel.samples.size == parallel.number > 1
        return together and bool(self._batch) and parallel.has_outputs

    def _log(self, computing: float | None) -> None:
        parallel = self._parallel
        if not self._is_shown:
            return
        shares = parallel.shares(self._batch)
        balance = parallel.balance
        # Of a stage or a master the prediction is not: it is of the slowest stage, and of master and slaves together.
        alone = parallel.samples.size == parallel.grid.world.size
        predicted = balance.predicted_seconds(shares) if isinstance(balance, Static) and alone else None
        seen = None if computing is None else parallel.samples.allgather(computing)
        log_lines(LOG, lines(shares, predicted, seen, parallel.ranks_with_samples))
        idle = sum(not share.count for share in shares)
        if idle and computing is None:
            LOG.warning(
                "Balance: %d of %d ranks have no samples of a batch of %d and only wait; start fewer ranks, or enlarge "
                "batch_size", idle, len(shares), shares[0].total,
            )  # fmt: skip
