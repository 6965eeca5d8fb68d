"""Which rank reads what: in the outer layer rank 0 alone tests and resumes, and may be the only one with any data."""

from __future__ import annotations

from collections.abc import Mapping

from bpt.plan.nets import NetPlan
from bpt.proto import bpt_pb2 as pb
from bpt.schedule.outer.exchanges import OUTER
from bpt.server.roles import SERVER


def is_outer(param: pb.SolverParameter) -> bool:
    """Whether the solver trains by SGWU, AGWU or ASGD."""
    return param.parallel_param.exchange in OUTER


def reads_all(param: pb.SolverParameter, rank: int) -> bool:
    """Whether ``rank`` needs the test nets, weights to start from, and a snapshot to resume."""
    return rank == SERVER or not is_outer(param)


def nets_with_data(plans: Mapping[str, NetPlan], param: pb.SolverParameter, rank: int) -> dict[str, NetPlan]:
    """Those of a rank's nets whose data it reads itself."""
    shipped = param.parallel_param.ship_data and not reads_all(param, rank)
    return {} if shipped else dict(plans)
