"""A solver's text without what it asks for besides training."""

from __future__ import annotations

from bpt.proto import bpt_pb2 as pb

_LEFT_OUT = ("test_net", "test_net_param", "test_iter", "test_state", "test_interval", "snapshot")


def only_training(param: pb.SolverParameter) -> None:
    """Take tests and snapshots out of ``param``: they may need data or folders that are not there."""
    for field in _LEFT_OUT:
        param.ClearField(field)
    param.snapshot_after_train = False
