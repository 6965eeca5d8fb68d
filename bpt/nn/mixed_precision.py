"""MixedPrecision: the autocast of a net, which says which of its layers and blobs are in bfloat16 or float16.

``bpt/graph/autocast.py`` decides that by the types of layers, ``Net.bottoms`` casts, and
``bpt/train/runtime/half_precision.py`` measures which layers gain by it.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from bpt.config.precision import HALF, Precision
from bpt.graph.autocast import HalfPrecision, choosable, half_precision, without_half_precision
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.layer_spec import Autocast


class MixedPrecision:
    """The numbers in which the layers of a net compute, and in which their blobs are.

    Args:
        precision: of the run.

    Attributes:
        in_half: the layers and edges in half precision.
        casts: whether any layer computes in half precision.
    """

    def __init__(self, graph: LayerGraph, precision: Precision) -> None:
        self._graph = graph
        self._precision = precision
        self.in_half: HalfPrecision = without_half_precision(graph)
        self.compute_in_half(() if precision.measures or precision.named else None)

    def compute_in_half(self, layers: Collection[str] | None) -> None:
        """Run the named multiplying layers in half precision, and the layers between them.

        This has no effect if the run's precision has no half, and on layers whose text names their precision.

        Args:
            layers: their names. ``None`` means all, which is the default unless the precision is measured or belongs
                to named layers.
        """
        if self._precision.half is not None:
            full = () if layers is None else {node.name for node in choosable(self._graph) if node.name not in layers}
            self.in_half = half_precision(self._graph, full)
        self.casts = any(self.in_half.layers)

    def layers_in_half(self) -> frozenset[str]:
        """Return the names of the layers that ``compute_in_half`` was given."""
        nodes = (node for node in self._graph.nodes if self.in_half.layers[node.index])
        return frozenset(node.name for node in nodes if node.layer_type.autocast(node.spec) is Autocast.HALF)

    @property
    def multiply_type(self) -> torch.dtype:
        """The number type in which layers multiply: half precision if any layer uses it."""
        return self._precision.blob_type(self.casts)

    def type_of(self, edge: int) -> torch.dtype:
        """Return the numbers of a blob, and of its diff."""
        return self._precision.blob_type(self.in_half.edges[edge])

    def type_of_layer(self, node: LayerNode) -> torch.dtype:
        """Return the numbers in which a layer computes."""
        return self._precision.blob_type(self.in_half.layers[node.index])

    def cast(self, top: Tensor) -> Tensor:
        """Return what a layer without bottoms has made, or an output of the net, in the run's precision."""
        return top.to(self._precision.compute) if top.dtype in (torch.float32, *HALF) else top
