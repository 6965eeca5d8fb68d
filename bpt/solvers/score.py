"""Scoring a trained model on its TEST phase, with the lines of ``caffe test``."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.net import Net
from bpt.operators.local import LocalOperator
from bpt.proto import bpt_pb2 as pb
from bpt.report.log import number
from bpt.report.progress import Progress
from bpt.solvers.display import loss_note
from bpt.solvers.nets import file_plan
from bpt.solvers.snapshot import load_weights
from bpt.solvers.testing import Scores, run_test

LOG = logging.getLogger("bpt")


def score(
    model: str, weights: Sequence[str], iterations: int, device: torch.device, level: int, stages: tuple[str, ...]
) -> Scores:
    """Run ``iterations`` batches of the network text ``model`` with ``weights``, log and return the means."""
    LOG.info("Use %s.", "CPU" if device.type == "cpu" else f"GPU with device ID {device.index}")
    net = Net(file_plan(model, pb.TEST, level, stages).graph()).to(device)
    try:
        for path in weights:
            load_weights(net, path)
        LOG.info("Running for %d iterations.", iterations)
        with Progress(iterations, label="testing") as progress:

            def show(batch: int, outputs: dict[str, Tensor]) -> None:
                for blob, value in outputs.items():
                    for element in value.flatten().tolist():
                        LOG.info("Batch %d, %s = %s", batch, blob, number(element))
                progress.advance()

            scores = run_test(LocalOperator(net, device=device), iterations, each=show)
        assert scores is not None
        LOG.info("Loss: %s", number(scores.loss))
        for edge in net.graph.outputs:
            for element in scores.outputs[edge.blob].flatten().tolist():
                LOG.info("%s = %s%s", edge.blob, number(element), loss_note(edge.loss_weight, element))
        return scores
    finally:
        net.close()
