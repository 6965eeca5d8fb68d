"""Builds the solvers of the outer layer: the server's, which tests and writes, and the workers', which train."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import torch

from bpt.comm.base import Communicator
from bpt.data.shipped import Spool
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.source import layer_specs
from bpt.graph.state import filter_layers
from bpt.plan.nets import TRAIN_FIELDS, train_plan
from bpt.plan.only_training import only_training
from bpt.plan.stage_placement import described, stage
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource
from bpt.server.assignment import Assignment
from bpt.server.legality import apart, of_node
from bpt.solver.solver import Solver

LOG = logging.getLogger("bpt")


def server_solver(source: SolverSource, device: torch.device, resume: str, seed: int | None) -> Solver:
    """Holds the global weights while they are tested or written. It trains nothing.

    Args:
        resume: see Solver.
        seed: of an earlier run that is repeated.
    """
    own = apart(source)
    if own.param.engine == pb.SolverParameter.AUTO:
        own.param.engine = pb.SolverParameter.CONTIGUOUS  # there are no iterations to try layouts in
    if seed is not None:
        own.param.random_seed = seed
    return Solver(own, device=device, resume=resume)


def worker_solver(
    source: SolverSource,
    number: int,
    assignment: Assignment,
    device: torch.device,
    spools: Mapping[str, Spool] = MappingProxyType({}),
    quiet: bool = False,
    stages: Communicator | None = None,
) -> Solver:
    """Trains alone, or as a stage, by the same text as all others. Its first weights come from the server.

    Args:
        number: of the worker.
        spools: of the data layers whose records the server sends, by name.
        quiet: log nothing: the server of the same process has told all.
        stages: the ranks of the pipeline that the worker is; by default this one is alone.
    """
    own = of_node(source)
    only_training(own.param)
    own.param.ClearField("weights")
    own.param.display = 0
    own.param.random_seed = assignment.seed
    if number in assignment.engines:
        engine, inner = assignment.engines[number]
        own.param.engine = engine  # type: ignore[assignment]
        own.param.parallel_param.inner_param.engine = inner  # type: ignore[assignment]
    if spools:
        _redirect(own, spools)
    with _silence(quiet):
        return Solver(own, device=device, world=stages)


def stage_lines(source: SolverSource, graph: LayerGraph) -> Iterator[str]:
    """Which layers of the training net each stage of a worker runs, line by line; none if workers are no pipelines.

    Raises:
        PrototxtError, FileError: the net cannot be placed.
    """
    staging = stage(of_node(source), graph)
    if staging:
        yield f"Each computing node is a {staging}"
        yield from described(staging)


def _redirect(solver: SolverSource, spools: Mapping[str, Spool]) -> None:
    """Let the data layers of the training net read from ``spools``."""
    plan = train_plan(solver)
    net = plan.source.param
    for spec in filter_layers(layer_specs(net, plan.source.origins), plan.state):
        if spec.name in spools:
            spools[spec.name].redirect(spec.param)
    for name in TRAIN_FIELDS:
        solver.param.ClearField(name)
    solver.param.train_net_param.CopyFrom(net)


@contextmanager
def _silence(quiet: bool) -> Iterator[None]:
    level = LOG.level
    if quiet:
        LOG.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        LOG.setLevel(level)
