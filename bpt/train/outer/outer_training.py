"""Trains with the outer layer: builds this rank's part of it, and runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import torch

from bpt.base.errors import PrototxtError
from bpt.base.signals import SignalActions
from bpt.base.violation import refuse
from bpt.config.plan.run_plan import RunPlan
from bpt.data.shipped import RecordCache, RecordChunk
from bpt.system.comm.agreement import check_same, outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.system.comm.cores import powers
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import clock_of
from bpt.train.outer.assignment import Assignment
from bpt.train.outer.coded_submissions import codings
from bpt.train.outer.node_solvers import worker_runtime
from bpt.train.outer.parameter_server import ParameterServer, parts_of
from bpt.train.outer.remote import RemoteServer
from bpt.train.outer.replay_log import read_log
from bpt.train.outer.roles import SERVER, NodeFacts, Roles
from bpt.train.outer.serving import ServerSession
from bpt.train.outer.trainer import Trainer
from bpt.train.outer.worker import Signals, Worker
from bpt.train.outer.worker_ranks import WorkerRanks
from bpt.train.rules.violations import violations, violations_of_ranks
from bpt.train.runtime.flight_log import FlightLog
from bpt.train.runtime.rank_group import RankGroup, heartbeat_of
from bpt.train.runtime.run_facts import check_content, data_facts, facts_of
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.milestones import Listener
from bpt.train.solver.solver import RunOutcome


def train(
    plan: RunPlan,
    world: Communicator,
    device: torch.device,
    signals: SignalActions | None = None,
    resume: str = "",
    replay: str = "",
    listeners: Sequence[Listener] = (),
) -> RunOutcome:
    """Train by SGWU, AGWU or ASGD, as the solver says; rank 0 logs and writes. This is a collective call.

    Args:
        plan: the plan of the run.
        device: the device of this rank.
        signals: the signals to act on; ``None``: signals keep their usual effect.
        resume: a solver state to continue from, or "auto".
        replay: the replay log of the run to repeat.
        listeners: get the milestones of rank 0: its tests and its snapshots.

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
    serving: ServerSession | None = None

    def serve() -> Assignment:
        nonlocal serving
        recorded = read_log(replay) if replay else None
        serving = ServerSession(plan, roles, device, resume, recorded, world.events, listeners)
        return serving.assignment

    assignment = outcome_of_first(world, serve if roles.serves else None)
    if not assignment.iterations:
        return RunOutcome(assignment.first, terminated=False)
    ranks = _ranks_of_worker(roles, world)
    with _recording_flight(plan, world), ExitStack() as stack:
        caches: dict[str, RecordCache] = {}
        if not roles.serves:
            caches = {name: stack.enter_context(RecordCache(header)) for name, header in assignment.headers.items()}
        runtime = None
        if roles.worker is not None:
            runtime = worker_runtime(plan, roles.worker, assignment, device, caches, roles.serves, ranks)
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
            joined = [NodeFacts.combined(each) for each in parts]
            own = _trainer(runtime, assignment, roles, ranks) if runtime else None
            return serving.run(joined, comm, runtime, own, signals, hosts, coded)
        assert runtime and roles.worker is not None
        stack.enter_context(runtime)
        if signals:
            stack.enter_context(signals)
        trainer = _trainer(runtime, assignment, roles, ranks, signals, tuple(caches.values()))
        asked: Signals | None = signals
        keep: list[Callable[[RecordChunk], object]] = [cache.append for cache in caches.values()]
        if isinstance(trainer, WorkerRanks):
            if not roles.leads:
                return trainer.follow()
            asked = trainer
            keep = [partial(trainer.store, layer) for layer in range(len(caches))]
        link = RemoteServer(comm, roles.worker, trainer.size, trainer.dtype, keep, roles.holders, coded)
        return Worker(roles.worker, trainer, link, assignment, asked).run()


@contextmanager
def _recording_flight(plan: RunPlan, world: Communicator) -> Iterator[None]:
    """Detect ranks that stand still in the block; a collective call.

    A worker that stands still is killed, and the others continue without it if they can.
    """
    log = FlightLog.of(world, plan.snapshot_prefix)
    # No rank begins the same instructions as another one.
    beat = heartbeat_of(plan, RankGroup.all_of(world), log, world.rank, heals=False)
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
    caches: tuple[RecordCache, ...] = (),
) -> Trainer | WorkerRanks:
    """Return the net of this rank's worker; a collective call of the worker's ranks."""
    if roles.ranks == 1:
        return Trainer(runtime, assignment.gradients)
    return WorkerRanks(runtime, assignment.gradients, ranks.Dup(), signals, caches)


def _ranks_of_worker(roles: Roles, world: Communicator) -> Communicator:
    """Return the ranks that train synchronously with this one, in order; a collective call."""
    if roles.ranks == 1:
        return SerialCommunicator(world.events)
    return world.Split(0 if roles.worker is None else 1 + roles.worker)
