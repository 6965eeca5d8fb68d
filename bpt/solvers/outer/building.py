"""Builds the solvers of the outer layer: the server's, which tests and writes, and the workers', which train."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from bpt.proto import bpt_pb2 as pb
from bpt.proto.solver import SolverSource
from bpt.solvers.only_training import only_training
from bpt.solvers.outer.assignment import Assignment
from bpt.solvers.solver import Solver

LOG = logging.getLogger("bpt")


def server_solver(source: SolverSource, device: torch.device, resume: str, seed: int | None) -> Solver:
    """Holds the global weights while they are tested or written. It trains nothing.

    Args:
        resume: see Solver.
        seed: of an earlier run that is repeated.
    """
    own = _apart(source)
    if own.param.engine == pb.SolverParameter.AUTO:
        own.param.engine = pb.SolverParameter.CONTIGUOUS  # there are no iterations to try layouts in
    if seed is not None:
        own.param.random_seed = seed
    return Solver(own, device=device, resume=resume)


def worker_solver(source: SolverSource, assignment: Assignment, device: torch.device, quiet: bool = False) -> Solver:
    """Trains alone, by the same text as all others. Its first weights come from the server.

    Args:
        quiet: log nothing: the server of the same process has told all.
    """
    own = _apart(source)
    only_training(own.param)
    own.param.ClearField("weights")
    own.param.display = 0
    own.param.random_seed = assignment.seed
    own.param.parallel_param.inner_param.CopyFrom(source.param.parallel_param.inner_param)
    with _silence(quiet):
        return Solver(own, device=device)


def _apart(source: SolverSource) -> SolverSource:
    """The same text, for one process that is alone."""
    param = pb.SolverParameter()
    param.CopyFrom(source.param)
    param.ClearField("parallel_param")
    return replace(source, param=param)


@contextmanager
def _silence(quiet: bool) -> Iterator[None]:
    level = LOG.level
    if quiet:
        LOG.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        LOG.setLevel(level)
