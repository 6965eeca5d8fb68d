"""Refuses a solver text whose numbers make no sense, before anything is built."""

from __future__ import annotations

import math

from bpt.errors import PrototxtError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.solver import SolverSource
from bpt.solvers import lr_policy, snapshot, update_rules

_AT_LEAST = {
    "max_iter": 0, "display": 0, "average_loss": 1, "iter_size": 1, "snapshot": 0, "test_interval": 0, "device_id": 0,
}  # fmt: skip

_NAMES = {"exchange": pb.ParallelParameter.Exchange, "balance": pb.ParallelParameter.Balance}


def check_solver(solver: SolverSource) -> None:
    """Raise a PrototxtError, at the field that is wrong, unless the solver can be run."""
    param = solver.param
    if not param.HasField("max_iter"):
        raise PrototxtError("max_iter is not set: how many iterations to train?", solver.origin())
    for field, least in _AT_LEAST.items():
        value = getattr(param, field)
        if value < least:
            raise PrototxtError(f"{field} is {value}; it must be at least {least}", solver.origin(field))
    for field in ("base_lr", "weight_decay", "momentum", "clip_gradients"):
        if not math.isfinite(getattr(param, field)):
            raise PrototxtError(f"{field} is {getattr(param, field)}; it must be finite", solver.origin(field))
    for index, iterations in enumerate(param.test_iter):
        if iterations < 1:
            raise PrototxtError(f"test_iter is {iterations}; it must be at least 1", solver.origin("test_iter", index))
    _check_parallel(solver)
    for check in (lr_policy.check, update_rules.check, snapshot.check):
        check(param, solver.origin)


def _check_parallel(solver: SolverSource) -> None:
    """What asks for more than this one process is refused, never ignored."""
    parallel = solver.param.parallel_param

    def refuse(what: str, *path: str) -> None:
        raise PrototxtError(
            f"parallel_param: {what} is not available yet: this version trains on one process",
            solver.origin("parallel_param", *path),
        )

    for field in ("num_stages", "num_shards"):
        value = getattr(parallel, field)
        if value < 1:
            raise PrototxtError(
                f"parallel_param: {field} is {value}; it must be at least 1", solver.origin("parallel_param", field)
            )
        if value > 1:
            refuse(f"{field}: {value}", field)
    default = pb.ParallelParameter()
    for field in ("exchange", "balance"):
        if getattr(parallel, field) != getattr(default, field):
            refuse(f"{field}: {_NAMES[field].Name(getattr(parallel, field))}", field)
    if parallel.inner_param.engine != default.inner_param.engine:
        refuse("inner_param { engine: TASK_DAG }", "inner_param", "engine")
    if parallel.inner_param.num_threads:
        refuse(f"inner_param {{ num_threads: {parallel.inner_param.num_threads} }}", "inner_param", "num_threads")
