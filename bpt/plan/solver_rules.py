"""Refuses a solver text whose numbers make no sense, before anything is built."""

from __future__ import annotations

import math

from bpt import state as snapshot
from bpt.errors import PrototxtError
from bpt.optim import lr_policy
from bpt.optim import rules as update_rules
from bpt.plan.pipeline_rules import check_pipeline
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource

_AT_LEAST = {
    "max_iter": 0, "display": 0, "average_loss": 1, "iter_size": 1, "snapshot": 0, "test_interval": 0, "device_id": 0,
}  # fmt: skip

_EXCHANGES = tuple(map(pb.ParallelParameter.Exchange.Value, ("ALLREDUCE", "TREE", "CGDP", "RING")))


def check_solver(solver: SolverSource, writes: bool = True) -> None:
    """Raise a PrototxtError, at the field that is wrong, unless the solver can be run.

    Args:
        writes: whether this rank writes the snapshots.
    """
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
    for check in (lr_policy.check, update_rules.check, *([snapshot.check] if writes else [])):
        check(param, solver.origin)


def _check_parallel(solver: SolverSource) -> None:
    """What cannot be done yet, or contradicts itself, is refused, never ignored."""
    parallel = solver.param.parallel_param

    def refuse(message: str, *path: str) -> None:
        raise PrototxtError(f"parallel_param: {message}", solver.origin("parallel_param", *path))

    for field in ("num_stages", "num_shards"):
        value = getattr(parallel, field)
        if value < 1:
            refuse(f"{field} is {value}; it must be at least 1", field)
    if parallel.num_stages > 1:
        check_pipeline(solver)
    if parallel.exchange not in _EXCHANGES:
        name = pb.ParallelParameter.Exchange.Name(parallel.exchange)
        refuse(
            f"exchange: {name} is for bpt train (and bpt simulate), where workers do not go in step; here, add --set "
            "'parallel_param { exchange: ALLREDUCE balance: UNIFORM }'", "exchange",
        )  # fmt: skip
    if parallel.balance == pb.ParallelParameter.IDPA:
        refuse(
            "balance: IDPA divides the data set among the workers of exchange: SGWU, AGWU or ASGD; use one of them, or "
            "balance: STATIC, which divides each batch", "balance",
        )  # fmt: skip
    chunks = parallel.cgdp_param
    for field, least in (("chunk_size", 0), ("step", 1), ("range", 1), ("interval", 1)):
        value = getattr(chunks, field)
        if value < least:
            refuse(f"{field} is {value}; it must be at least {least}", "cgdp_param", field)
    if chunks.chunking == pb.CgdpParameter.MODEL and chunks.chunk_size:
        refuse(
            f"chunk_size: {chunks.chunk_size} makes chunks of one size, but chunking: MODEL chooses them by itself; "
            "leave one of them out",
            "cgdp_param", "chunk_size",
        )  # fmt: skip
    if parallel.inner_param.engine == pb.InnerParameter.TASK_DAG and parallel.num_shards > 1:
        refuse(
            f"inner_param {{ engine: TASK_DAG }} does not go with num_shards: {parallel.num_shards}; leave one of "
            "them out", "inner_param", "engine",
        )  # fmt: skip
    if parallel.inner_param.num_threads < 0:
        refuse(
            f"num_threads is {parallel.inner_param.num_threads}; it must be at least 0 (0: the node's cores divided "
            "by its ranks)", "inner_param", "num_threads",
        )  # fmt: skip
    if parallel.balance == pb.ParallelParameter.STATIC and not parallel.balance_param.profile:
        refuse(
            "balance: STATIC needs balance_param { profile: … }, a file that "
            '"mpirun … bpt time --solver S --profile FILE" writes',
            "balance",
        )
