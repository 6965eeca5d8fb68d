"""What ``bpt plan --measure`` does: times each layer of a solver's training net here, and writes that to a file."""

from __future__ import annotations

import logging
import platform
from dataclasses import replace

import torch

from bpt.base.errors import FileError
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.engine.memory_format_choice import LayoutChoice
from bpt.graph.segments import cut
from bpt.graph.staging import Staging
from bpt.nn.layers.base import batch_of
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.divisible_batches import gathering
from bpt.parallel.balance.rank_facts import model_of
from bpt.parallel.cluster.costs_file import MeasuredCosts, MeasuredLayerCost, write_costs
from bpt.parallel.pipeline.stage_placement import DELAYED
from bpt.perf.speeds.profiling import no_place_for
from bpt.perf.speeds.step_benchmark import RATE
from bpt.perf.timing.layer_times import choose_layout
from bpt.perf.timing.micro_batch_times import time_parts
from bpt.train.runtime.binding import bind
from bpt.train.runtime.train_options import TrainOptions

LOG = logging.getLogger("bpt")


def measure(plan: RunPlan, device: torch.device, iterations: int, path: str) -> MeasuredCosts:
    """Time the layers of the training net, the net in one piece, and its update; write the medians to ``path``.

    It runs as a process that is alone, in the net's batch, cut into the micro-batches of ``pipeline_param``, and in the
    layout that training would choose. Nothing is tested, and nothing is learned.

    Raises:
        PrototxtError: the solver or its net is wrong, or the net does not go in micro-batches.
        FileError: there is no such folder to write to.
        WriteError: the file could not be written.
    """
    if problem := no_place_for(path):
        raise FileError(path, problem)
    alone = replace(plan.measured(), parallel_param=ParallelSpec(), notes=())
    micro_batches = _micro_batches(plan)
    graph = build_graph_of(alone.train)
    staging = Staging.alone(graph, (micro_batches,), gathering(graph, plan.parallel_param.pipeline_param))
    with bind(alone, None, None, TrainOptions(device, staging=staging)) as runtime:
        graph, operator = runtime.net.graph, runtime.nets.train.operator

        def update() -> object:
            return runtime.updater.rule.update(RATE, 0)

        layout = LayoutChoice(alone.engine)
        choose_layout(operator, layout, update)
        LOG.info("Engine: %s", layout)
        LOG.info(
            "Measuring %d batch%s%s: %d layers, each by itself, and the whole net",
            iterations, "es" * (iterations != 1),
            f", each in {micro_batches} micro-batches" if micro_batches > 1 else "", len(graph),
        )  # fmt: skip
        whole = time_parts(operator, iterations, update)
        operator.cut_into(cut(graph, range(len(graph)), sources_apart=True))
        layers = time_parts(operator, iterations, update)
        machine = f"{platform.node()}: {model_of(device)}"
        costs = MeasuredCosts(
            graph.name, batch_of(graph), micro_batches, machine, torch.get_num_threads(),
            whole.forward[0].median, whole.backward[0].median, whole.update.median,
            tuple(
                MeasuredLayerCost(node.name, node.type, node.flops, forward.median, backward.median)
                for node, forward, backward in zip(graph.nodes, layers.forward, layers.backward, strict=True)
            ),
        )  # fmt: skip
    write_costs(costs, path)
    return costs


def _micro_batches(plan: RunPlan) -> int:
    """In which a batch travels."""
    param = plan.parallel_param.pipeline_param
    return 1 if param.schedule == DELAYED else param.micro_batches
