"""BlobOperator: runs a net layer by layer, with one memory for each blob, as Caffe has it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from bpt.errors import UserError
from bpt.execute.compute import LibraryCompute
from bpt.execute.operator import SegmentOperator
from bpt.execute.segment_state import MicroBatchState
from bpt.graph.layer_graph import LayerGraph, Node
from bpt.graph.segments import per_layer
from bpt.layers import DataLayer
from bpt.net import Net


class Memory(dict[int, Tensor]):
    """Tensors by edge. All versions of a blob that layers rewrite in place are one: the last that was written.

    A version with a ``loss_weight`` is apart, for that is its diff and must outlast the backward pass.
    """

    def __init__(self, graph: LayerGraph) -> None:
        super().__init__()
        first: dict[str, int] = {}
        self._place = [
            edge.index if edge.loss_weight else first.setdefault(edge.blob, edge.index) for edge in graph.edges
        ]

    def __getitem__(self, edge: int) -> Tensor:
        return super().__getitem__(self._place[edge])

    def __setitem__(self, edge: int, tensor: Tensor) -> None:
        super().__setitem__(self._place[edge], tensor)

    def __contains__(self, edge: object) -> bool:
        return isinstance(edge, int) and super().__contains__(self._place[edge])

    def get(self, edge: int, default: Any = None) -> Any:
        return super().get(self._place[edge], default)

    def pop(self, edge: int, default: Any = None) -> Any:
        return super().pop(self._place[edge], default)


class BlobOperator(SegmentOperator):
    """Executes a net one layer a segment. A pass may start and end anywhere, and backward may be repeated.

    ``values`` and ``diffs`` are the memory of the blobs, each the caller's to read and to write.
    """

    def __init__(self, net: Net, device: torch.device | str) -> None:
        memory = MicroBatchState(net.context, Memory(net.graph), Memory(net.graph))
        compute = partial(LibraryCompute, keeps_graphs=True)
        super().__init__(net, per_layer(net.graph), device, compute=compute, state=memory)
        self.closed = False

    @property
    def number(self) -> torch.dtype:
        """Of all blobs."""
        return self.net.context.precision.compute

    def data(self, edge: int) -> Tensor:
        """Data of a blob; zeros if nothing has written it yet."""
        if edge not in self.values:
            self.feed({edge: torch.zeros(self.net.graph.edges[edge].shape, dtype=self.number)})
        return self.values[edge]

    def diff(self, edge: int) -> Tensor:
        """Diff of a blob; the ``loss_weight`` of a loss, or zeros, if nothing has written it yet."""
        if edge not in self.diffs:
            info = self.net.graph.edges[edge]
            start = info.loss_weight if info.consumer is None else 0.0  # else the pass adds it
            self.diffs[edge] = torch.full(self.shape(edge), start, dtype=self.number, device=self.device)
        return self.diffs[edge]

    def shape(self, edge: int) -> tuple[int, ...]:
        """The shape of a blob's data as they are now."""
        return tuple(self.values[edge].shape) if edge in self.values else self.net.graph.edges[edge].shape

    def forward(self, index: int, micro: int | None = None, *, grad: bool = True) -> None:
        node = self.net.graph.nodes[index]
        if self.closed and isinstance(self.net.layer(node), DataLayer):
            raise UserError(f'layer "{node.name}" cannot read data: the net is closed')
        read = {_memory_of(self.data(edge)) for edge in node.bottoms}
        super().forward(index, micro, grad=grad)
        if not node.layer_type.is_view:
            self._separate(node, read)
        for edge in node.tops:
            if edge in self.diffs and self.diffs[edge].shape != self.values[edge].shape:
                self.diffs.pop(edge)  # from a batch of another shape

    def _separate(self, node: Node, read: set[int]) -> None:
        """Copy tops that are views of a bottom, where Caffe's are not: writing to one must not change the other."""
        bottoms = {self.net.graph.edges[edge].blob for edge in node.bottoms}
        for edge in node.tops:
            if self.net.graph.edges[edge].blob not in bottoms and _memory_of(self.values[edge]) in read:
                self.values[edge] = self.values[edge].clone()

    def backward(self, index: int, micro: int | None = None) -> None:
        node = self.net.graph.nodes[index]
        if not node.needs_backward:
            return
        if index not in self.outcome.segments:
            raise UserError(f'layer "{node.name}": backward needs a forward pass before it')
        state = self.outcome.segments[index]
        for leaf in state.leaves.values():
            leaf.grad = None
        super().backward(index, micro)
        self.outcome.segments[index] = state  # for the next time

    def close(self) -> None:
        self.closed = True
        super().close()

    def forget_passes(self) -> None:
        """Parameters have changed: what a backward pass would need of the last forward pass is out of date."""
        self.outcome.segments.clear()

    def forget_blobs(self) -> None:
        """The net's blobs have other shapes: forget all but the data of its inputs."""
        graph = self.net.graph
        inputs = {graph.blobs[name].index: self.data(graph.blobs[name].index) for name in graph.inputs}
        self.reset()
        self.feed(inputs)


def _memory_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
