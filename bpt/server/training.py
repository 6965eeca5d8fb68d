"""Trains with the outer layer: builds this rank's part of it, and runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import torch

from bpt.comm.agreement import check_same, outcome_of_first
from bpt.comm.base import Communicator
from bpt.comm.cores import powers
from bpt.comm.serial import SerialCommunicator
from bpt.data.shipped import Parcel, Spool
from bpt.device import clock_of
from bpt.errors import PrototxtError
from bpt.plan.spec import RunPlan
from bpt.plan.violations import violations, violations_of_ranks
from bpt.runtime.agreement import check_content, data_facts, facts_of
from bpt.runtime.crew import Crew, heartbeat_of
from bpt.runtime.flight_log import FlightLog
from bpt.runtime.runtime import Runtime
from bpt.server.assignment import Assignment
from bpt.server.coded_submissions import codings
from bpt.server.node_solvers import worker_runtime
from bpt.server.nodes import NodeFacts
from bpt.server.parameter_server import ParameterServer, parts_of
from bpt.server.remote import RemoteServer
from bpt.server.replay_log import read_log
from bpt.server.roles import SERVER, Roles
from bpt.server.serving import Serving
from bpt.server.trainer import Trainer
from bpt.server.worker import Signals, Worker
from bpt.server.worker_ranks import WorkerRanks
from bpt.signals import SignalActions
from bpt.solver.solver import Outcome
from bpt.violation import refuse


def train(
    plan: RunPlan,
    world: Communicator,
    device: torch.device,
    signals: SignalActions | None = None,
    resume: str = "",
    replay: str = "",
) -> Outcome:
    """Train by SGWU, AGWU or ASGD, whichever the solver names; a collective call. Rank 0 logs and writes.

    Args:
        plan: of the run.
        device: where this rank computes.
        signals: noted while it trains; ``None``: signals keep their usual effect.
        resume: a solver state to go on from, or "auto".
        replay: a replay log; the run that left it is repeated.

    Raises:
        UserError: a text, the log, or the number of ranks is wrong.
        RunError: the run failed.
    """
    refuse(plan, (*violations(plan), *violations_of_ranks(plan, world.size)))
    roles = Roles.of(plan.parallel_param, world)
    if SERVER in roles.workers and roles.ranks > 1 and not world.concurrent:
        raise PrototxtError(
            f"parallel_param: server: COLOCATED with workers of {roles.ranks} ranks takes an MPI library that lets "
            f"several threads communicate (MPI_THREAD_MULTIPLE), and this one does not; leave it out: rank {SERVER} "
            "then only serves",
            plan.origin("parallel_param", "server"),
        )
    serving: Serving | None = None

    def serve() -> Assignment:
        nonlocal serving
        serving = Serving(plan, roles, device, resume, read_log(replay) if replay else None, world.events)
        return serving.assignment

    assignment = outcome_of_first(world, serve if roles.serves else None)
    if not assignment.iterations:
        return Outcome(assignment.first, terminated=False)
    ranks = _ranks_of_worker(roles, world)
    with _watched(plan, world), ExitStack() as stack:
        spools: dict[str, Spool] = {}
        if not roles.serves:
            spools = {name: stack.enter_context(Spool(header)) for name, header in assignment.headers.items()}
        runtime = None
        if roles.worker is not None:
            runtime = worker_runtime(plan, roles.worker, assignment, device, spools, roles.serves, ranks)
        built = runtime or (serving and serving.solver)
        data = ranks.bcast(data_facts({"the training net": built.net}) if built else None)  # the leader has all layers
        check_same(world, facts_of(plan, built.net.graph) | data if built else None)
        check_content(world, {"the training net": built.net} if built else {})
        power = powers(world, clock_of(device))[world.rank]
        nodes = world.allgather(NodeFacts(world.host, power, torch.get_num_threads()))
        comm, hosts = world.Dup(), [node.host for node in nodes]
        dtype = np.dtype(assignment.dtype)
        coded = codings(plan.parallel_param, hosts, assignment.trained, dtype)
        if roles.holds:
            part = parts_of(assignment.elements, roles.holders)[world.rank - roles.holders[0]]
            held = ParameterServer(comm, part, assignment.trained, dtype, roles.workers, coded)
            if signals:  # noted here, too: the launcher sends them to all ranks, and the main server stops the run
                stack.enter_context(signals)
            return held.run()
        if serving:
            parts = [[nodes[rank] for rank in roles.ranks_of(worker)] for worker in range(len(roles.workers))]
            joined = [NodeFacts.joined(each) for each in parts]
            own = _trainer(runtime, assignment, roles, ranks) if runtime else None
            return serving.run(joined, comm, runtime, own, signals, hosts, coded)
        assert runtime and roles.worker is not None
        stack.enter_context(runtime)
        if signals:
            stack.enter_context(signals)
        trainer = _trainer(runtime, assignment, roles, ranks, signals, tuple(spools.values()))
        asked: Signals | None = signals
        keep: list[Callable[[Parcel], object]] = [spool.append for spool in spools.values()]
        if isinstance(trainer, WorkerRanks):
            if not roles.leads:
                return trainer.follow()
            asked = trainer
            keep = [partial(trainer.keep, layer) for layer in range(len(spools))]
        link = RemoteServer(comm, roles.worker, trainer.size, trainer.dtype, keep, roles.holders, coded)
        return Worker(roles.worker, trainer, link, assignment, asked).run()


@contextmanager
def _watched(plan: RunPlan, world: Communicator) -> Iterator[None]:
    """Notice ranks that stand still meanwhile; a collective call.

    A worker that is named is killed, and the others go on without it where they outlive it.
    """
    log = FlightLog.of(world, plan.snapshot_prefix)
    # No rank begins the same instructions as another one.
    beat = heartbeat_of(plan, Crew.all_of(world), log, world.rank, heals=False)
    failed = True
    try:
        yield
        failed = False
    finally:
        if beat:
            beat.close(failed)


def _trainer(
    runtime: Runtime,
    assignment: Assignment,
    roles: Roles,
    ranks: Communicator,
    signals: SignalActions | None = None,
    spools: tuple[Spool, ...] = (),
) -> Trainer | WorkerRanks:
    """The net of this rank's worker; of one of several ranks, a collective call of these."""
    if roles.ranks == 1:
        return Trainer(runtime, assignment.gradients)
    return WorkerRanks(runtime, assignment.gradients, ranks.Dup(), signals, spools)


def _ranks_of_worker(roles: Roles, world: Communicator) -> Communicator:
    """The ranks that go in step with this one, in order; a collective call."""
    if roles.ranks == 1:
        return SerialCommunicator(world.events)
    return world.Split(0 if roles.worker is None else 1 + roles.worker)
