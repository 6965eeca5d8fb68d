"""Check the plan of a run of the outer layer (SGWU, AGWU, ASGD): roles, samples, memory, messages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import torch

from bpt.apps.doctor.findings import (
    Finding,
    Ranks,
    Section,
    attempt,
    bytes_text,
    nets_with_data,
    note,
    ok,
    spans,
    warning,
)
from bpt.apps.doctor.outer_work import OuterWork, check_disk, check_memory, sends_gradients, work_of
from bpt.apps.doctor.parallel_plan import CheckedPlan
from bpt.apps.doctor.texts import build_graphs, errors_of
from bpt.apps.doctor.wraparound_check import check_tests
from bpt.base.log import columns
from bpt.base.violation import refuse
from bpt.config.plan.nets import NetPlan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import STORED
from bpt.parallel.outer.quantities import bytes_moved
from bpt.system.comm.agreement import outcome_of_first
from bpt.system.comm.cores import powers, wanted_threads
from bpt.system.device import clock_of
from bpt.train.outer.node_solvers import node_lines
from bpt.train.outer.roles import SERVER, Roles, combined_power
from bpt.train.rules.violations import ignored_settings, violations_of_ranks

_SHOWN = 16  # largest number of workers that the table lists

_Exchange, _Balance = pb.ParallelParameter.Exchange, pb.ParallelParameter.Balance


def check_outer_plan(
    ranks: Ranks,
    plan: RunPlan,
    plans: Mapping[str, NetPlan],
    device: torch.device,
    known: Sequence[str],
    start: int,
) -> CheckedPlan:
    """Build the graphs of the nets and make the plan; a collective call, with the same texts on all ranks.

    Args:
        ranks: all ranks.
        plan: the plan of the run.
        plans: the plans of the nets by name.
        device: the device of this rank.
        known: errors of this rank that are reported already; a net that fails because of one is not reported again.
        start: the iteration from which the run resumes; only that of rank 0 counts.
    """
    world = ranks.world
    built = build_graphs(ranks, plan, nets_with_data(plans, plan, world.rank), known)
    if built.findings:
        return _plan(built.findings, wrong=built.wrong)
    divided = attempt(lambda: refuse(plan, violations_of_ranks(plan, world.size)))
    if divided.error:
        return _plan(errors_of(ranks, [divided.message] * world.size), wrong=divided.error)
    roles = Roles.of(plan.parallel_param, world)
    power = _powers(ranks, device)
    of_workers = [combined_power([power[rank] for rank in roles.ranks_of(w)]) for w in range(len(roles.workers))]
    training = next(iter(built.by_name.values()), None)

    def work_here() -> tuple[OuterWork, tuple[str, ...]]:
        assert training is not None, "rank 0 has all nets"
        return work_of(plan, training, start, of_workers), tuple(node_lines(plan, training))

    made = attempt(lambda: outcome_of_first(world, work_here if roles.serves else None))
    if made.value is None:
        return _plan(errors_of(ranks, [made.message] * world.size), wrong=made.error)
    work, stages = made.value
    found = [
        *_roles(plan, roles),
        *map(ok, stages),
        *_amounts(plan, roles, work, ranks, of_workers),
        *_order(roles, work),
        *_momentum(plan, roles),
        *check_memory(ranks, roles, work, device, sends_gradients(plan)),
        *(check_disk(ranks, roles, work) if plan.parallel_param.ship_data else ()),
        *_traffic(plan, roles, work),
        *check_tests(ranks, plan, built.by_name),
        *(warning(str(remark), "leave it out") for remark in ignored_settings(plan)),
    ]
    copies = 1 + plan.snapshot_diff + work.moments
    return _plan(found, tuple(_table(ranks, roles, work, of_workers)), work.elements * STORED * copies)


def _plan(
    findings: Sequence[Finding] | Iterator[Finding],
    table: Sequence[str] = (),
    snapshot: int | None = None,
    wrong: Exception | None = None,
) -> CheckedPlan:
    return CheckedPlan(Section("Plan", tuple(findings), tuple(table)), wrong, snapshot)


def _powers(ranks: Ranks, device: torch.device) -> list[float | None]:
    """Return the power of each rank; unknown for all if one rank has a problem with its threads."""
    misused = ranks.world.allgather(attempt(lambda: wanted_threads(os.environ)).message)
    return [None] * ranks.world.size if any(misused) else powers(ranks.world, clock_of(device))


def _roles(plan: RunPlan, roles: Roles) -> Iterator[Finding]:
    parallel = plan.parallel_param
    yield ok(f"{_Exchange.Name(parallel.exchange)}, balance {_Balance.Name(parallel.balance)}; {roles}")
    if len(roles.workers) == 1 and SERVER not in roles.workers:
        yield note(
            "one computing node trains as one process does, and rank 0 is only its server",
            "start more ranks, or let rank 0 compute, too: parallel_param { server: COLOCATED }"
            if roles.ranks == 1
            else f"start more ranks, {roles.ranks} for each computing node",
        )


def _momentum(plan: RunPlan, roles: Roles) -> Iterator[Finding]:
    """Yield a warning if gradients of ASGD may diverge."""
    if sends_gradients(plan) and plan.optim.momentum and len(roles.workers) > 1:
        yield warning(
            f"ASGD: gradients of {len(roles.workers)} workers are stale, and momentum {plan.optim.momentum:g} "
            "amplifies that",
            "if the loss grows, lower momentum or base_lr",
        )


def _amounts(
    plan: RunPlan, roles: Roles, work: OuterWork, ranks: Ranks, power: Sequence[float | None]
) -> Iterator[Finding]:
    """Yield the passes over all samples (K) and over a worker's own (K'), and the first samples of each worker."""
    if not work.total:
        yield note(f"nothing to train: the snapshot is at max_iter {plan.max_iter} already", "set a larger max_iter")
        return
    yield ok(
        f"{work.iterations} iterations of {work.batch} samples are {float(work.passes):.4g} passes over "
        f"{work.samples} samples (K); each worker makes {float(work.total):.4g} over its own"
    )
    if plan.parallel_param.balance == pb.ParallelParameter.IDPA:
        unknown = [rank for rank, known in zip(roles.workers, power, strict=True) if known is None]
        if unknown:
            yield note(f"{ranks.named(unknown)}: its frequency cannot be read; the mean of the others is used")
        by = "by the power of the workers (MHz × cores); the next ones by each worker's time for a sample"
        yield ok(f"batch 1 of {work.batches} has {sum(work.first)} samples, {_span(work.first)}: {by}")
    else:
        yield ok(f"the {work.samples} samples are handed out at once, {_span(work.first)}")
    idle = [worker for worker, count in enumerate(work.first) if not count]
    if idle:
        rest = " before the second batch" if work.batches > 1 else ""
        yield warning(
            f"worker{'s' * (len(idle) > 1)} {spans(idle)}: there are too few samples: nothing to train{rest}",
            "set a smaller num_batches, or start fewer ranks" if rest else "start fewer ranks",
        )
    elif work.samples // len(work.first) < work.batch:
        yield note(
            f"a worker has about {work.samples // len(work.first)} samples, fewer than the {work.batch} of an "
            "iteration: it trains some of them twice in one", "set a smaller batch_size, or start fewer ranks",
        )  # fmt: skip


def _span(counts: Sequence[int]) -> str:
    if len(counts) == 1:
        return "all to one worker"
    least, most = min(counts), max(counts)
    return f"{least if least == most else f'{least} to {most}'} for each of {len(counts)} workers"


def _table(ranks: Ranks, roles: Roles, work: OuterWork, power: Sequence[float | None]) -> Iterator[str]:
    """Yield a line for each worker, if there are few workers."""
    if not 1 < len(roles.workers) <= _SHOWN:
        return
    rows: list[tuple[str, ...]] = [("worker", "rank", "host", "MHz × cores", "first samples")]
    for worker in range(len(roles.workers)):
        mine, members = power[worker], roles.ranks_of(worker)
        known = "unknown" if mine is None else f"{mine:.0f}"
        hosts = "+".join(dict.fromkeys(ranks.hosts[rank] for rank in members))
        rows.append((str(worker), spans(members), hosts, known, str(work.first[worker])))
    yield from columns(rows, left=3)


def _order(roles: Roles, work: OuterWork) -> Iterator[Finding]:
    """Yield a note if a worker may get samples of some classes only."""
    if work.unshuffled and len(roles.workers) > 1:
        layer, message = work.unshuffled
        yield note(
            f'layer "{layer}" keeps the order of its source, and each worker gets consecutive samples: if the data are '
            "sorted, by class or by day, a worker sees only some classes, and accuracy suffers",
            f"{message} {{ shuffle: true }} in the network's text gives each worker samples of all classes",
        )


def _traffic(plan: RunPlan, roles: Roles, work: OuterWork) -> Iterator[Finding]:
    """Yield the traffic between the server and the workers."""
    outer, workers, c_w = plan.parallel_param.agwu_param, len(roles.workers), work.weights
    computes = SERVER in roles.workers
    remote = workers - computes
    if not remote:
        return
    if sends_gradients(plan):
        yield ok(
            f"each worker sends {bytes_text(c_w)} of gradients every {outer.push} iterations, and gets as much of "
            f"weights every {outer.fetch}"
        )
        return
    often = "pass" if outer.local_epochs == 1 else f"{outer.local_epochs} passes, once all samples are handed out,"
    here = f", except {bytes_text(2 * c_w)} that stay in rank 0's memory" * computes
    yield ok(
        f"each {often} moves {bytes_text(bytes_moved(c_w, workers, 1))} of weights to the server and back "
        f"(2 c_w m, Eq. 11){here}"
    )
