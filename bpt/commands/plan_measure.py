"""What ``bpt plan --measure`` does: times each layer of a solver's training net here, and writes that to a file."""

from __future__ import annotations

import logging
import platform
from dataclasses import replace

import torch

from bpt.errors import FileError
from bpt.graph.segments import per_layer
from bpt.operators.layout import LayoutChoice
from bpt.operators.local import LocalOperator
from bpt.operators.timing import LayerTimes, PassTimes, choose_layout, time_layers, time_passes
from bpt.proto.solver import SolverSource
from bpt.solvers.only_training import only_training
from bpt.solvers.outer.check import apart
from bpt.solvers.pipelines.costs_file import Costs, LayerCost, write_costs
from bpt.solvers.solver import Solver
from bpt.solvers.speeds.profiling import model_of, no_place_for
from bpt.solvers.speeds.rehearsal import RATE, batch_of

LOG = logging.getLogger("bpt")


def measure(source: SolverSource, device: torch.device, iterations: int, path: str) -> Costs:
    """Time the layers of the training net, the net in one piece, and its update; write the medians to ``path``.

    It runs as a process that is alone, in the net's batch and in the layout that training would choose. Nothing is
    tested, and nothing is learned.

    Raises:
        PrototxtError: the solver or its net is wrong.
        FileError: there is no such folder to write to.
        WriteError: the file could not be written.
    """
    if problem := no_place_for(path):
        raise FileError(path, problem)
    alone = apart(source)
    only_training(alone.param)
    for field in ("display", "weights"):
        alone.param.ClearField(field)
    with Solver(replace(alone, notes=()), device=device) as solver:
        graph = solver.net.graph
        by_layer = LocalOperator(solver.net, per_layer(graph), device)
        whole = LocalOperator(solver.net, device=device)
        layout = LayoutChoice(solver.param.engine)
        choose_layout(whole, layout, lambda: solver.rule.update(RATE, 0))
        by_layer.engine = layout.engine
        LOG.info("Engine: %s", layout)
        LOG.info("Measuring %d passes of %d layers, each by itself, and of the whole net", iterations, len(graph))
        passes = time_passes(whole, iterations, lambda: solver.rule.update(RATE, 0))
        layers = time_layers(by_layer, iterations)
        machine = f"{platform.node()}: {model_of(device)}"
        costs = _costs(graph.name, batch_of(graph), machine, layers, passes)
    write_costs(costs, path)
    return costs


def _costs(net: str, batch: int, machine: str, layers: list[LayerTimes], passes: PassTimes) -> Costs:
    assert passes.update is not None
    return Costs(
        net, batch, machine, torch.get_num_threads(),
        passes.forward.median, passes.backward.median, passes.update.median,
        tuple(
            LayerCost(
                layer.node.name, layer.node.type, layer.node.flops, layer.forward.median, layer.backward.median
            )
            for layer in layers
        ),
    )  # fmt: skip
