"""SpeedFacts of a run: its net, its solver, and the devices of its ranks."""

from __future__ import annotations

import torch

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.parallel.balance.profile import RankFacts, SpeedFacts, work_digest
from bpt.system.comm.base import Communicator
from bpt.system.device.processor import processor_name


def facts(plan: RunPlan, graph: LayerGraph, device: torch.device, world: Communicator) -> SpeedFacts:
    """Return what the speeds of this run depend on; a collective call.

    Args:
        graph: the training net.
        world: all ranks.
    """
    ranks = world.allgather(RankFacts(world.host, model_of(device), torch.get_num_threads()))
    settings: dict[str, str | int] = {
        "engine": pb.SolverParameter.Engine.Name(plan.engine),
        "type": plan.optim.type,
        "iter_size": plan.optim.iter_size,
    }
    return SpeedFacts(work_digest(graph), settings, tuple(ranks))


def model_of(device: torch.device) -> str:
    """Return the kind of a device and its model, since a host may have got another device under its old name."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"cpu ({processor_name()})"
