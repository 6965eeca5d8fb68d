"""The choice of the inner engine by measuring the first iterations of training."""

from __future__ import annotations

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.measured_choice import MeasuredChoice


class InnerChoice(MeasuredChoice):
    """The choice between torch's own threads and the tasks of the inner layer."""

    names = pb.InnerParameter.Engine
    candidates = (pb.InnerParameter.LIBRARY, pb.InnerParameter.TASK_DAG)
    auto = pb.InnerParameter.AUTO
    trials = 5
