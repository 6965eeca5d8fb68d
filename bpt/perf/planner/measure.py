"""Times each layer of a solver's training net on this machine, and writes a costs file; ``bpt plan --measure``."""

from __future__ import annotations

import logging
import platform
from dataclasses import replace

import torch

from bpt.base.atomic import check_place
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.graph.segments import cut
from bpt.graph.staging import Staging
from bpt.nn.layers.base import batch_of
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.divisible_batches import gathering
from bpt.parallel.balance.rank_facts import model_of
from bpt.parallel.cluster.costs_file import MeasuredCosts, MeasuredLayerCost, write_costs
from bpt.parallel.pipeline.stage_placement import DELAYED
from bpt.perf.speeds.step_benchmark import RATE
from bpt.perf.timing.layer_times import choose_layout
from bpt.perf.timing.micro_batch_times import time_parts
from bpt.train.runtime.binding import bind
from bpt.train.runtime.train_options import TrainOptions

LOG = logging.getLogger("bpt")


def measure(plan: RunPlan, device: torch.device, iterations: int, path: str) -> MeasuredCosts:
    """Time the layers of the training net, the whole net, and its update; write the medians to ``path``.

    A single process runs the net, with the batch cut into the micro-batches of ``pipeline_param``, in the memory layout
    that training would choose. It runs no tests, and changes no weights.

    Raises:
        PrototxtError: the solver or its net is wrong, or the net cannot run in micro-batches.
        FileError: no file can be written at ``path``.
        WriteError: the file could not be written.
    """
    check_place(path)
    alone = replace(plan.measured(), parallel_param=ParallelSpec(), notes=())
    micro_batches = _micro_batches(plan)
    graph = build_graph_of(alone.train)
    staging = Staging.alone(graph, (micro_batches,), gathering(graph, plan.parallel_param.pipeline_param))
    with bind(alone, None, None, TrainOptions(device, staging=staging)) as runtime:
        graph, operator = runtime.net.graph, runtime.nets.train.operator

        def update() -> object:
            return runtime.updater.rule.update(RATE, 0)

        layout = MemoryFormatChoice(alone.engine)
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
    """Return the number of micro-batches of a batch."""
    param = plan.parallel_param.pipeline_param
    return 1 if param.schedule == DELAYED else param.micro_batches
