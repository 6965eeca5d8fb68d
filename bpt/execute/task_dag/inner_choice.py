"""Whether LIBRARY or TASK_DAG runs a net's passes: chosen by measuring, in the first iterations of training."""

from __future__ import annotations

from bpt.execute.engine_choice import EngineChoice
from bpt.proto import bpt_pb2 as pb


class InnerChoice(EngineChoice):
    """Between torch's own threads and the tasks of the inner layer; see EngineChoice."""

    names = pb.InnerParameter.Engine
    candidates = (pb.InnerParameter.LIBRARY, pb.InnerParameter.TASK_DAG)
    auto = pb.InnerParameter.AUTO
    trials = 5
