"""The estimated time of a layer on one core, from its text, which decides how many tasks are worth their cost.

These are estimates and not measurements, so that a net always has the same tasks and the same results. Times are
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from bpt.graph.layer_graph import LayerNode
from bpt.graph.layer_spec import Shape, count
from bpt.nn.layers import LAYERS

FLOPS = 6e10  # operations a second of layers that multiply matrices
OPERATIONS = 3e9  # of all others
ELEMENTS = 2e9  # elements that are read or written in a second
BACKWARD = 2.0  # a layer's backward takes so many times its forward

GRAIN = 1e-4  # what a task should take at least: several times what it costs to hand it to a thread


def forward_seconds(node: LayerNode, shapes: Mapping[int, Shape], parameters: int, share: float) -> float:
    """Return the estimated seconds of a layer's forward.

    Args:
        shapes: the shapes of this rank's blobs, by edge.
        parameters: the number of the layer's parameters.
        share: this rank's part of the batch, 0 to 1.
    """
    rate = FLOPS if LAYERS[node.type].multiplies else OPERATIONS
    moved = parameters + sum(count(shapes[edge]) for edge in (*node.bottoms, *node.tops))
    return node.flops * share / rate + moved / ELEMENTS
