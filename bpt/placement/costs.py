"""What each layer of a net costs: time, and memory for its parameters and for what it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bpt.errors import UserError
from bpt.graph.layer_graph import LayerGraph, Node
from bpt.graph.spec import count
from bpt.graph.transfers import is_source

BYTES = 4  # of an element
VIEWS = frozenset(("Flatten", "Split"))  # their tops share the bottom's memory


@dataclass(frozen=True)
class Cost:
    """Of one layer, for the whole batch of one replica.

    Attributes:
        name: of the layer.
        forward, backward: seconds on a device of speed 1; where nothing was measured, FLOPs (a speed is then in
            FLOP/s, or only a ratio).
        parameters: bytes of its parameters and of what training keeps for them.
        activations: bytes of its tops, which backward needs.
    """

    name: str
    forward: float
    backward: float
    parameters: int = 0
    activations: int = 0

    @property
    def work(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward


def costs_of(
    graph: LayerGraph, measured: Mapping[str, tuple[float, float]] | None = None, histories: int = 1
) -> tuple[Cost, ...]:
    """The cost of each layer, in order.

    A layer without bottoms costs no time: data are read ahead. Without measurements a layer costs its FLOPs forward
    and twice as many backward, if it runs backward at all. A trained parameter takes memory for its values, its
    gradient and ``histories`` blobs of its update rule, any other one for its values only; shared ones count at their
    owner's layer.

    Args:
        measured: layer name → seconds forward and backward, for the whole batch.
        histories: blobs that the update rule keeps for each parameter (momentum: 1; Adam: 2).

    Raises:
        UserError: ``measured`` lacks a layer.
    """
    return tuple(
        Cost(node.name, *_times(node, measured), _parameters(graph, node, histories), _activations(graph, node))
        for node in graph.nodes
    )


def _times(node: Node, measured: Mapping[str, tuple[float, float]] | None) -> tuple[float, float]:
    if is_source(node):
        return 0.0, 0.0
    if measured is None:
        return float(node.flops), 2.0 * node.flops if node.needs_backward else 0.0
    if node.name in measured:
        return measured[node.name]
    if node.type == "Split":
        return 0.0, 0.0
    raise UserError(f'the measured costs have no layer "{node.name}"; measure this net anew')


def _parameters(graph: LayerGraph, node: Node, histories: int) -> int:
    own = [graph.params[index] for index in node.params if not graph.params[index].shared]
    return sum(
        BYTES * count(param.shape) * (2 + histories if param.learnable and param.lr_mult else 1) for param in own
    )


def _activations(graph: LayerGraph, node: Node) -> int:
    return 0 if node.type in VIEWS else sum(BYTES * count(graph.edges[edge].shape) for edge in node.tops)
