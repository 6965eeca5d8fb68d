"""Makes the runs of the outer layer's nodes: the server's, which tests and writes, and the workers', which train."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import torch

from bpt.base.violation import refuse
from bpt.config.plan.nets import NetFields
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.shipped import RecordCache
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_specs import layer_specs
from bpt.graph.state import filter_layers
from bpt.parallel.balance.divisible_batches import violations_dealt_out
from bpt.parallel.pipeline.stage_placement import described, stage
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.events.bus import EventBus
from bpt.train.outer.assignment import Assignment
from bpt.train.rules.violations import violations_of_net
from bpt.train.runtime.binding import bind
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.milestones import Listener
from bpt.train.solver.solver import Solver

LOG = logging.getLogger("bpt")
SILENT = logging.Logger("bpt, silent")  # it has no parent, and its handler writes nothing
SILENT.addHandler(logging.NullHandler())


def server_solver(
    plan: RunPlan,
    device: torch.device,
    resume: str,
    seed: int | None,
    events: EventBus | None = None,
    listeners: Sequence[Listener] = (),
) -> Solver:
    """Return a solver that tests and writes the global weights, and does not train.

    Args:
        resume: as in Solver.
        seed: the seed of an earlier run that is replayed.
        events: the events of this rank.
        listeners: the listeners of the solver.
    """
    own = plan.standalone()
    if own.engine == pb.SolverParameter.AUTO:
        own = replace(own, engine=pb.SolverParameter.CONTIGUOUS)  # there are no iterations to try layouts in
    if seed is not None:
        own = own.with_seed(seed)
    options = TrainOptions(device, resume=resume, serves=plan.parallel_param)
    return Solver(own, options, world=SerialCommunicator(events), listeners=listeners)


def worker_runtime(
    plan: RunPlan,
    number: int,
    assignment: Assignment,
    device: torch.device,
    caches: Mapping[str, RecordCache] = MappingProxyType({}),
    quiet: bool = False,
    ranks: Communicator | None = None,
) -> Runtime:
    """Return a runtime that trains the common text from the server's weights, alone or as a rank of a worker.

    Args:
        number: the number of the worker.
        caches: the caches of the data layers whose records the server sends, by name.
        quiet: whether to log nothing about the nets, because the server of the same process has logged it.
        ranks: the ranks of the worker, which train synchronously; by default this rank is alone.
    """
    own = plan.of_node().measured().with_seed(assignment.seed)
    if number in assignment.engines:
        engine, inner = assignment.engines[number]
        own = replace(own, engine=engine)
        own = own.with_parallel(inner_param=replace(own.parallel_param.inner_param, engine=inner))
    if caches:
        own = _redirected(own, caches)
    # A replay knows the engines of an earlier run, and not its algorithms.
    return bind(own, None, ranks, TrainOptions(device, tries_algorithms=False, log=SILENT if quiet else LOG))


def node_lines(plan: RunPlan, graph: LayerGraph) -> Iterator[str]:
    """Yield a line for each stage of a worker with its layers of the training net; without pipelines, yield nothing.

    Raises:
        PrototxtError, FileError: the net cannot be placed, or divided over the ranks of a worker.
    """
    own, parallel = plan.of_node(), plan.parallel_param
    refuse(plan, violations_dealt_out(plan, graph))
    refuse(own, violations_of_net(own, graph, ranks=parallel.node_ranks))
    staging = stage(own, graph, parallel.node_ranks // parallel.replica_ranks)
    if staging:
        yield f"Each computing node is a {staging}"
        yield from described(staging)


def _redirected(plan: RunPlan, caches: Mapping[str, RecordCache]) -> RunPlan:
    """Return the plan whose training net's data layers read from ``caches``."""
    net = pb.NetParameter()
    net.CopyFrom(plan.train.source.param)
    for spec in filter_layers(layer_specs(net, plan.train.source.origins), plan.train.state):
        if spec.name in caches:
            caches[spec.name].redirect(spec.param)
    return replace(plan, nets=NetFields(train_net_param=net, train_state=plan.nets.train_state))
