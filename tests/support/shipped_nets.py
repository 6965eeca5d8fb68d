"""Graphs of the networks in ``prototxt/``."""

from __future__ import annotations

from functools import cache

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from tests.support.net_cases import graph_in, read_net, with_inputs

# What nets read, other than "data" as in deploy.prototxt and a label for each sample.
INPUTS: dict[str, dict[str, tuple[int, ...]]] = {
    "mnist_autoencoder": {"data": (2, 1, 28, 28)},
    "mnist_siamese": {"pair_data": (2, 2, 28, 28), "sim": (2,)},
    "fcn_shapes": {"data": (2, 3, 50, 50), "label": (2, 1, 50, 50)},
    "ssd_shapes": {"data": (2, 3, 64, 64), "label": (1, 1, 1, 8)},
    "lrcn_moves": {"data": (16, 1, 20, 20), "cont": (16,), "label": (16,)},
}


@cache
def deploy(folder: str) -> LayerGraph:
    return graph_in(read_net(f"{folder}/deploy.prototxt"), pb.TEST)


@cache
def train_val(folder: str, phase: int) -> LayerGraph:
    """The net on images as large as those that deploy.prototxt takes."""
    net = read_net(f"{folder}/train_val.prototxt")
    inputs = INPUTS.get(folder)
    if inputs is None:
        (shape,) = (deploy(folder).blobs[name].shape for name in deploy(folder).inputs)
        inputs = {"data": (2, *shape[1:]), "label": (2,)}
    return graph_in(with_inputs(net, phase, inputs), phase)
