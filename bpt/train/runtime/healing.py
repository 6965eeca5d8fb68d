"""Healing: a synchronous run continues without its lost ranks, with the same batches and the same curve.

Under fault tolerance, the death of a rank fails only the operations that need it. The rank that notices it interrupts
all others (``Revoke``), wherever they wait. The remaining ranks find each other (``Shrink``), agree on a state (see
``recovery``), and bind the plan to it again. An iteration that was not complete on all of them is repeated. Samples,
masks and orders do not depend on ranks, so the curve is that of the undisturbed run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod

from bpt.base.errors import LostRankError
from bpt.base.log import take_over_logging
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.config.plan.run_plan import RunPlan
from bpt.graph.layer_graph import LayerGraph
from bpt.system.comm.base import Communicator
from bpt.system.comm.connectivity import name_of
from bpt.train.rules.violations import violations_of_net, violations_of_ranks
from bpt.train.runtime.binding import bind
from bpt.train.runtime.rank_group import RankGroup, SpareRank
from bpt.train.runtime.recovery import PartRecord, recovered
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.state.train_state import TrainState

LOG = logging.getLogger("bpt")


_WELL = 1  # bit of a rank that has finished its work
_ONLY_WAITED = 2  # bit of a spare rank; if all live ranks have it, no rank that did the work is left
_HELD = "; no other rank has what it held"
_REMEDY = f"{_HELD}: fault_param {{ copies: 1 }} keeps a copy in the memory of another rank"
_NO_COPY = f"{_HELD}: the rank with its copy is lost, too; --snapshot auto continues from the last snapshot"


def start(plan: RunPlan, everyone: Communicator, options: TrainOptions) -> Runtime | SpareRank:
    """Return the run of ``plan`` or, on spare ranks, a SpareRank; a collective call of all ranks."""
    return _take_place(plan, None, RankGroup.of_job(plan, everyone), options)


def _take_place(
    plan: RunPlan, state: TrainState | None, group: RankGroup, options: TrainOptions
) -> Runtime | SpareRank:
    return bind(plan, state, group, options) if group.trains else SpareRank(plan, group)


def run_with_recovery(
    run: Runtime | SpareRank, hosts: Mapping[int, str], options: TrainOptions, work: Callable[[Runtime], object]
) -> Runtime | SpareRank:
    """Do ``work`` with a run, and repeat it with the remaining ranks after a loss; a collective call.

    Spare ranks wait until they replace others.

    Args:
        hosts: the hosts of the job's ranks.
        options: the options of the run.
        work: function that continues the run to its end.

    Returns:
        The run that has finished the work.

    Raises:
        LostRankError: a rank was lost, and the run does not heal, or cannot, because the others lack a part of its
            state.
    """
    while True:
        agreed = False  # each communicator calls Agree once, at the end or when healing begins
        try:
            if isinstance(run, Runtime):
                work(run)
            if not run.heals:
                return run
            agreed = True
            everyone = run.group.everyone
            if everyone.Agree(_WELL if isinstance(run, Runtime) else _WELL | _ONLY_WAITED) == _WELL:
                return run
            raise everyone.loss() or LostRankError("another rank was lost at the end")
        except LostRankError as loss:
            if not run.heals:
                run.record(loss)
                raise
            try:
                run = heal(run, loss, hosts, options, agreed)
            except LostRankError as end:
                run.record(end)
                raise
        except BaseException as error:
            run.record(error)
            run.close(failed=True)
            raise


def hosts_of(world: Communicator) -> dict[int, str]:
    """Return the host of each rank in ``world``, by its number in the job; a collective call."""
    return dict(zip(world.world_ranks, world.allgather(world.host), strict=True))


def heal(
    run: Runtime | SpareRank,
    loss: LostRankError,
    hosts: Mapping[int, str],
    options: TrainOptions,
    agreed: bool = False,
) -> Runtime | SpareRank:
    """Return the run on the remaining ranks; a collective call of these.

    Args:
        run: the run before the loss, which is closed.
        loss: the error that the run has met.
        hosts: the hosts of the job's ranks.
        options: the options of the run.
        agreed: whether this rank had finished already, and has learnt that others have not.

    Raises:
        LostRankError: the remaining ranks do not have all of the state.
    """
    start = time.monotonic()
    plan, graph, everyone = run.plan, run.graph, run.group.everyone
    before = list(everyone.world_ranks)
    records = run.records()
    _break_off(everyone, agreed)
    while True:
        everyone = everyone.Shrink()
        run.close(failed=True)  # not earlier: its heartbeat watches the ranks that this one waits for
        found = time.monotonic()
        try:
            state = recovered(everyone, graph, records)
            if state is None:
                raise _UnrecoverableError
            records = [*records, PartRecord(state)]
            lost = [rank for rank in before if rank not in everyone.world_ranks]
            group = run.group.left(plan, everyone)
            arranged = _arranged(plan, graph, group.size, [before.index(rank) for rank in lost])
            if everyone.rank == 0:
                take_over_logging()
                _log_loss(arranged, lost, hosts, state.iteration, group)
            healed = _take_place(arranged, state, group, options)
        except _UnrecoverableError:
            why = _NO_COPY if plan.parallel_param.fault_param.copies else _REMEDY
            raise LostRankError(f"{loss}{why}", loss.ranks) from loss
        except LostRankError:  # another rank was lost meanwhile
            _break_off(everyone)
            continue
        LOG.info("Healed: %.3g s to find each other, %.3g s to continue", found - start, time.monotonic() - found)
        return healed


def _break_off(world: Communicator, agreed: bool = False) -> None:
    """Interrupt all ranks, wherever they wait; ranks that have finished learn that the run continues."""
    world.Revoke()
    if not agreed:
        world.Agree(0)


class _UnrecoverableError(Exception):
    """The ranks' records do not form a whole state; all ranks find the same."""


def _log_loss(plan: RunPlan, lost: Sequence[int], hosts: Mapping[int, str], iteration: int, group: RankGroup) -> None:
    names = ", ".join(name_of(rank, hosts[rank]) for rank in lost) or "a connection"
    grid = plan.parallel_param.layout(group.size)
    spares = group.everyone.size - group.size
    rest = f"; {spares} spare" if spares else ""
    LOG.warning("Lost: %s; going on after iteration %d on %s%s", names, iteration, grid, rest)


def _arranged(plan: RunPlan, graph: LayerGraph, ranks: int, lost: Sequence[int]) -> RunPlan:
    """Return the plan with the largest grid for the remaining ranks, in which no side is longer than before.

    So the part of the net on each rank grows as little as possible. If layers name their stages, which then no longer
    fit, the net is not divided into stages. If replicas are listed, only those of the lost ranks get fewer stages.

    Args:
        lost: the places of the lost ranks among the ranks before.
    """
    parallel = plan.parallel_param
    grids = product(range(parallel.depth, 0, -1), range(parallel.num_shards, 0, -1))
    layouts = [ReplicaLayout.regular(ranks, *grid) for grid in sorted(grids, key=prod, reverse=True)]
    if parallel.replica:
        layouts.insert(0, parallel.layout(ranks).without(lost))
    for layout in layouts:
        arranged = plan if layout == parallel.layout(ranks) else plan.with_layout(layout)
        if not violations_of_ranks(arranged, ranks) and not violations_of_net(arranged, graph, (), ranks):
            return arranged
    return plan
