"""Backward passes in two parts: one for the diffs of inputs, and a later one for the gradients of weights.

Only products are divided: convolutions and products of matrices, whose two gradients are separate kernels of about the
same time. The first part runs the graph down to the inputs, and keeps the diff that comes to each product's output.
It computes the gradients of all other parameters, which fall out of the same sums (BatchNorm, Scale) or are used in
several places. The second part is then the weights' kernels alone: nothing is computed twice. Until then, the graph
keeps what the forward pass saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from bpt.engine.differentiate import add_gradients_of, gradients
from bpt.nn.kernels.backward_part import weights_alone, without_weights

PRODUCTS = frozenset(f"{name}Backward0" for name in ("Convolution", "Addmm", "Mm", "Baddbmm", "Bmm", "Linear")) | {
    "_LinearBackward",
    "_LinearByBackward",
    "_ConvolveBackward",
}  # the last ones are ours, see backward_part
"""The nodes of autograd whose gradients of inputs and of weights are computed separately."""

LEAF = "torch::autograd::AccumulateGrad"


class WeightGradients(NamedTuple):
    """Gradients that a first part has left.

    Attributes:
        product: the output of a product.
        weights: the parameters that only this product uses.
        diff: of the output.
    """

    product: GradientEdge
    weights: tuple[Tensor, ...]
    diff: Tensor

    def add(self) -> None:
        """Add the gradients to the ``.grad`` of the parameters, and free what the product has saved."""
        with weights_alone([self.product.node]):
            add_gradients_of(self.product, self.diff, self.weights)


def run_first_part(
    tops: Sequence[Tensor], diffs: Sequence[Tensor], leaves: Sequence[Tensor]
) -> tuple[Sequence[Tensor | None], list[WeightGradients]]:
    """Run a backward pass from ``diffs`` of ``tops``, without the gradients of products' weights.

    Returns:
        The gradients of ``leaves``, ``None`` where nothing flows, and what the second part has to do.
    """
    products, others = _parameters_of(tops, leaves)
    wanted: list[Tensor | GradientEdge] = [*leaves, *others, *(product for product, _ in products)]
    with without_weights({product.node for product, _ in products}):
        found = gradients(tops, diffs, wanted, keep_graph=bool(products)) if wanted else ()
    for value, gradient in zip(others, found[len(leaves) :], strict=False):
        if gradient is not None:
            value.grad = gradient if value.grad is None else value.grad + gradient
    due = zip(products, found[len(leaves) + len(others) :], strict=True)
    return found[: len(leaves)], [WeightGradients(*each, diff) for each, diff in due if diff is not None]


def _parameters_of(
    tops: Sequence[Tensor], leaves: Sequence[Tensor]
) -> tuple[list[tuple[GradientEdge, tuple[Tensor, ...]]], list[Tensor]]:
    """Return the products, each with the parameters that only it uses, and all other parameters."""
    nodes = _nodes_below(tops)
    readers = Counter(below for node in nodes for below, _ in node.next_functions if below is not None)
    inputs = {id(leaf) for leaf in leaves}
    values = {node: node.variable for node in nodes if node.name() == LEAF}  # type: ignore[attr-defined]
    own = {node: value for node, value in values.items() if id(value) not in inputs}
    products = []
    for node in nodes:
        if node.name() in PRODUCTS:
            ends = [end for end in _ends(node, readers) if end in own]
            if ends:
                products.append((GradientEdge(node, 0), tuple(own.pop(end) for end in ends)))
    return products, list(own.values())


def _nodes_below(tops: Sequence[Tensor]) -> Collection[Node]:
    """Return all nodes of the graph of ``tops``, in a fixed order."""
    found: dict[Node, None] = {}
    ahead = [top.grad_fn for top in reversed(tops) if top.grad_fn is not None]
    while ahead:
        node = ahead.pop()
        if node not in found:
            found[node] = None
            ahead += [below for below, _ in node.next_functions if below is not None]
    return found.keys()


def _ends(product: Node, readers: Counter[Node]) -> Iterator[Node]:
    """Yield where those inputs of a product come from that nothing else uses and no other blob flows into."""
    for node, _ in product.next_functions:
        while node is not None and readers[node] == 1 and len(node.next_functions) == 1:
            node = node.next_functions[0][0]
        if node is not None and readers[node] == 1 and not node.next_functions:
            yield node
