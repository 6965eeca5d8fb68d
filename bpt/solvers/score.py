"""Scoring a trained model on its TEST phase, with the lines of ``caffe test``."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.device import use_line
from bpt.graph.segments import per_layer, whole
from bpt.operators.local import LocalOperator
from bpt.proto import bpt_pb2 as pb
from bpt.report.log import number
from bpt.report.progress import Progress
from bpt.solvers.display import loss_note
from bpt.solvers.making import make_net
from bpt.solvers.nets import file_plan
from bpt.solvers.snapshot import load_weights, weight_files
from bpt.solvers.testing import Scores, run_test

LOG = logging.getLogger("bpt")


def score(
    model: str, weights: Sequence[str], iterations: int, device: torch.device, level: int, stages: tuple[str, ...]
) -> Scores:
    """Run ``iterations`` batches of the network text ``model`` with ``weights``, log and return the means."""
    LOG.info("%s", use_line(device))
    graph = file_plan(model, pb.TEST, level, stages).graph()
    net = make_net(graph, device)
    try:
        if graph.inputs:
            LOG.warning("Nobody sets the net's inputs (%s): they hold zeros", ", ".join(graph.inputs))
        trained: set[str] = set()
        for path in weight_files(weights):
            trained |= load_weights(net, path)
        for node in graph.nodes:
            if node.params and node.name not in trained:
                LOG.warning("Layer %s is in none of the weights; it is scored as its fillers made it", node.name)
        LOG.info("Running for %d iterations.", iterations)
        with Progress(iterations, label="testing") as progress:

            def show(batch: int, outputs: dict[str, Tensor]) -> None:
                for blob, value in outputs.items():
                    for element in value.flatten().tolist():
                        LOG.info("Batch %d, %s = %s", batch, blob, number(element))
                progress.advance()

            operator = LocalOperator(net, per_layer(graph) if graph.debug_info else whole(graph), device)
            scores = run_test(operator, iterations, each=show, debug=graph.debug_info)
        assert scores is not None
        LOG.info("Loss: %s", number(scores.loss))
        for edge in graph.outputs:
            for element in scores.outputs[edge.blob].flatten().tolist():
                LOG.info("%s = %s%s", edge.blob, number(element), loss_note(edge.loss_weight, element))
        return scores
    finally:
        net.close()
