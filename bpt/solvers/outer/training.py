"""Trains with the outer layer: builds this rank's part of it, and runs it."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from bpt.comm.base import Communicator
from bpt.comm.power import powers
from bpt.data.shipped_spool import Spool
from bpt.device import clock_of
from bpt.proto.solver import SolverSource
from bpt.solvers.outer.assignment import Assignment
from bpt.solvers.outer.building import worker_solver
from bpt.solvers.outer.check import check_outer
from bpt.solvers.outer.flat_weights import FlatWeights
from bpt.solvers.outer.outcome import Outcome
from bpt.solvers.outer.remote import RemoteServer
from bpt.solvers.outer.replay_log import read_log
from bpt.solvers.outer.roles import Roles
from bpt.solvers.outer.serving import NodeFacts, Serving
from bpt.solvers.outer.worker import Worker
from bpt.solvers.ranks.agreement import check_same, data_facts, facts_of, outcome_of_first
from bpt.solvers.signals import SignalActions


def train(
    source: SolverSource,
    world: Communicator,
    device: torch.device,
    signals: SignalActions | None = None,
    resume: str = "",
    replay: str = "",
) -> Outcome:
    """Train by SGWU, AGWU or ASGD, whichever the solver names; a collective call. Rank 0 logs and writes.

    Args:
        source: the solver's text.
        device: where this rank computes.
        signals: noted while it trains; ``None``: signals keep their usual effect.
        resume: a solver state to go on from, or "auto".
        replay: a replay log; the run that left it is repeated.

    Raises:
        UserError: a text, the log, or the number of ranks is wrong.
        RunError: the run failed.
    """
    check_outer(source)
    roles = Roles.of(source.param.parallel_param, world)
    serving: Serving | None = None

    def serve() -> Assignment:
        nonlocal serving
        serving = Serving(source, roles, device, resume, read_log(replay) if replay else None)
        return serving.assignment

    assignment = outcome_of_first(world, serve if roles.serves else None)
    if not assignment.iterations:
        return Outcome(assignment.first, terminated=False)
    with ExitStack() as stack:
        spools: dict[str, Spool] = {}
        if not roles.serves:
            spools = {name: stack.enter_context(Spool(header)) for name, header in assignment.headers.items()}
        solver = None
        if roles.worker is not None:
            solver = worker_solver(source, roles.worker, assignment, device, spools, quiet=roles.serves)
        built = solver or (serving and serving.solver)
        assert built
        check_same(world, facts_of(source.param, built.net.graph) | data_facts({"the training net": built.net}))
        power = powers(world, clock_of(device))[world.rank]
        nodes = world.allgather(NodeFacts(world.host, power, torch.get_num_threads()))
        comm = world.Dup()
        if serving:
            return serving.run([nodes[rank] for rank in roles.workers], comm, solver, signals)
        assert solver and roles.worker is not None
        stack.enter_context(solver)
        if signals:
            stack.enter_context(signals)
        flat = FlatWeights(solver.net)
        link = RemoteServer(comm, roles.worker, flat.size, flat.dtype, tuple(spools.values()))
        return Worker(roles.worker, solver, link, assignment, signals).run()
