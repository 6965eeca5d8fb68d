"""The part of a solver's text that must be the same on all hosts."""

from __future__ import annotations

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import without

_OF_A_HOST = (
    "net", "train_net", "test_net", "weights", "snapshot_prefix", "solver_mode", "device_id",
    "parallel_param.balance_param.profile",
)  # fmt: skip


def relevant_solver(param: pb.SolverParameter) -> pb.SolverParameter:
    """Return ``param`` with only the fields that must be the same on all hosts."""
    relevant = without(param, *_OF_A_HOST)
    relevant.parallel_param.balance_param.SetInParent()  # the texts in replay logs always have it
    return relevant
