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
    """Of one layer, for what one replica has of a batch.

    Attributes:
        name: of the layer.
        forward, backward: seconds on a device of speed 1; where nothing was measured, FLOPs (a speed is then in
            FLOP/s, or only a ratio).
        parameters: bytes of its parameters and of what training keeps for them.
        activations: bytes of its tops, which backward needs.
        trained: bytes of the values of the parameters that it trains, alone.
        largest: bytes of the values of the largest of these.
    """

    name: str
    forward: float
    backward: float
    parameters: int = 0
    activations: float = 0
    trained: int = 0
    largest: int = 0

    @property
    def work(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward


def costs_of(
    graph: LayerGraph,
    measured: Mapping[str, tuple[float, float]] | None = None,
    histories: int = 1,
    replicas: int = 1,
) -> tuple[Cost, ...]:
    """The cost of each layer, in order.

    A layer without bottoms costs no time: data are read ahead. Without measurements a layer costs its FLOPs forward
    and twice as many backward, if it runs backward at all. A trained parameter takes memory for its values, its
    gradient and ``histories`` blobs of its update rule, any other one for its values only; shared ones count at their
    owner's layer.

    Args:
        measured: layer name → seconds forward and backward, for the whole batch.
        histories: blobs that the update rule keeps for each parameter (momentum: 1; Adam: 2).
        replicas: among so many the batch is divided evenly; so are times and activations.

    Raises:
        UserError: ``measured`` lacks a layer.
    """
    return tuple(_cost(graph, node, measured, histories, replicas) for node in graph.nodes)


def _cost(
    graph: LayerGraph,
    node: Node,
    measured: Mapping[str, tuple[float, float]] | None,
    histories: int,
    replicas: int,
) -> Cost:
    forward, backward = _times(node, measured)
    own = [graph.params[index] for index in node.params if not graph.params[index].shared]
    sizes = [(BYTES * count(param.shape), bool(param.learnable and param.lr_mult)) for param in own]
    trained = [size for size, learns in sizes if learns]
    return Cost(
        node.name,
        forward / replicas,
        backward / replicas,
        sum(size * (2 + histories if learns else 1) for size, learns in sizes),
        _activations(graph, node) / replicas,
        sum(trained),
        max(trained, default=0),
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


def _activations(graph: LayerGraph, node: Node) -> int:
    return 0 if node.type in VIEWS else sum(BYTES * count(graph.edges[edge].shape) for edge in node.tops)
