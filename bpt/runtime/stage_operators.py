"""Which operator runs a stage of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bpt.execute.delayed import DelayedOperator
from bpt.execute.stage_links import Links
from bpt.execute.staged import StagedOperator
from bpt.execute.staged_dag import StagedDagOperator
from bpt.graph.segments import Segment
from bpt.net import Net
from bpt.plan.spec import ParallelSpec
from bpt.plan.staging import Staging
from bpt.proto import bpt_pb2 as pb


def wants_tasks(param: ParallelSpec, device: torch.device) -> bool:
    """Whether an inner layer is to run passes as tasks, or may try to."""
    return param.inner_param.engine != pb.InnerParameter.LIBRARY and device.type == "cpu"


def staged_operator(
    param: ParallelSpec,
    staging: Staging,
    links: Links,
    net: Net,
    segments: Sequence[Segment],
    device: torch.device,
) -> StagedOperator:
    """What executes the segments of ``net`` on this rank; a test's batches are never divided or delayed."""
    stages, training = staging.stages(net.graph), net.graph.phase == pb.TRAIN
    if training and staging.rule == pb.PipelineParameter.DELAYED:
        delay = links.stages.size - 1 - links.stages.rank
        return DelayedOperator(net, segments, device, links=links, stages=stages, delay=delay)
    cuts = staging.cuts if training else (1,)
    if wants_tasks(param, device):
        threads = param.inner_param.num_threads
        return StagedDagOperator(net, segments, device, links=links, stages=stages, cuts=cuts, threads=threads)
    return StagedOperator(net, segments, device, links=links, stages=stages, cuts=cuts)
