"""BlobOperator: runs a net layer by layer, with one memory for each blob, as Caffe has it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bpt.base.errors import UserError
from bpt.caffe.core.whole_pass import WholePass, copied, share_memory, sources
from bpt.engine.compute import LibraryCompute, Update
from bpt.engine.operator import Operator
from bpt.engine.segment_state import MicroBatchState
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.segments import per_layer
from bpt.nn.layers import DataLayer
from bpt.nn.net import Net

Callback = Callable[[int], object]
"""Is told the number of a layer."""


class Memory(dict[int, Tensor]):
    """Tensors by edge. All versions of a blob that layers rewrite in place are one: the last that was written.

    A version with a ``loss_weight`` is apart, for that is its diff and must outlast the backward pass. What is in half
    precision is kept in single precision, of which numpy makes arrays; layers cast it back without a loss.
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
        super().__setitem__(self._place[edge], tensor.to(torch.promote_types(tensor.dtype, torch.float32)))

    def __contains__(self, edge: object) -> bool:
        return isinstance(edge, int) and super().__contains__(self._place[edge])

    def get(self, edge: int, default: Any = None) -> Any:
        return super().get(self._place[edge], default)

    def pop(self, edge: int, default: Any = None) -> Any:
        return super().pop(self._place[edge], default)


class BlobOperator(Operator):
    """Executes a net one layer a segment. A pass may start and end anywhere, and backward may be repeated.

    ``values`` and ``diffs`` are the memory of the blobs, each the caller's to read and to write.

    Where ``whole`` is set, a pass through the whole net may leave blobs out (``forward_whole``). Whatever needs one of
    them completes the pass (``complete``): all layers run one by one on the samples of that pass, and everything is as
    if they had from the start.

    Attributes:
        whole: how to run the net as one; ``None``: layer by layer only.
        in_use: opens a scope in which the blobs' tensors may be replaced.
        before_forward, after_forward, before_backward, after_backward: what is called at each layer of a pass.
    """

    def __init__(self, net: Net, device: torch.device | str) -> None:
        memory = MicroBatchState(net.context, Memory(net.graph), Memory(net.graph))
        compute = partial(LibraryCompute, keeps_graphs=True)
        super().__init__(net, per_layer(net.graph), device, compute=compute, state=memory)
        self.closed = False
        self.whole: WholePass | None = None
        self.in_use: Callable[[], AbstractContextManager[object]] = nullcontext
        self.before_forward: list[Callback] = []
        self.after_forward: list[Callback] = []
        self.before_backward: list[Callback] = []
        self.after_backward: list[Callback] = []
        self._samples: dict[int, Tensor] | None = None  # of a pass that has left blobs out
        self._watched: set[int] = set()  # edges, since the last pass
        self._went_inside = False  # whether since the last pass a caller needed more than blobs

    @property
    def number(self) -> torch.dtype:
        """The number type of all blobs."""
        return self.net.context.precision.compute

    def data(self, edge: int) -> Tensor:
        """Return data of a blob; zeros if nothing has written it yet."""
        if edge not in self.values and self._samples is not None:
            self.complete()
        if edge not in self.values:
            self.feed({edge: torch.zeros(self.net.graph.edges[edge].shape, dtype=self.number)})
        return self.values[edge]

    def watch(self, edge: int) -> Tensor:
        """Return the data of a blob that the caller may read after every pass."""
        self._watched.add(edge)
        return self.data(edge)

    def parameter(self, value: nn.Parameter) -> nn.Parameter:
        """Return a parameter, for a caller who may write to it."""
        self.separate_layers()
        if self.whole is not None:
            self.whole.forget()
        return value

    def diff(self, edge: int) -> Tensor:
        """Diff of a blob; the ``loss_weight`` of a loss, or zeros, if nothing has written it yet."""
        if edge not in self.diffs:
            info = self.net.graph.edges[edge]
            start = info.loss_weight if info.consumer is None else 0.0  # else the pass adds it
            self.diffs[edge] = torch.full(self.shape(edge), start, dtype=self.number, device=self.device)
        return self.diffs[edge]

    def shape(self, edge: int) -> tuple[int, ...]:
        """Return the shape of a blob's data as they are now."""
        return tuple(self.values[edge].shape) if edge in self.values else self.net.graph.edges[edge].shape

    def forward_whole(self, watched: Collection[int]) -> bool:
        """Run the whole net as one, if that can be and is worth it; blobs that nobody looks at are left out.

        Args:
            watched: edges that are wanted.
        """
        wanted, inside = self._watched.union(watched), self._went_inside
        self._watched, self._went_inside = set(), False
        if self.whole is None or not self.whole.fits or inside or self.calls:
            self._samples = None  # all blobs are made anew
            return False
        graph = self.net.graph
        for index in sources(graph):
            if graph.nodes[index].type != "Input":
                self._forward(index)
        made = {edge: self.data(edge) for index in sources(graph) for edge in graph.nodes[index].tops}
        samples = {edge: copied(tensor) for edge, tensor in made.items()}
        tops: dict[int, Tensor] = {}
        if all(tensor.shape == graph.edges[edge].shape for edge, tensor in samples.items()):
            tops = self.whole.run(samples, wanted)
            self.whole.fits = not share_memory([*samples.values(), *tops.values()])
        self.values.clear()
        if tops and self.whole.fits:
            self._samples = samples
            for node in filter(lambda node: node.bottoms, graph.nodes):
                self.batches.outcome.segments.pop(node.index, None)
            for edge, tensor in (*made.items(), *tops.items()):
                self.values[edge] = tensor
        else:  # blobs of other shapes than the graph's, which layers tell; or that Caffe has apart, or as one
            self._samples = made
            self.complete()
        return True

    @property
    def calls(self) -> bool:
        """Whether somebody wants to be called at each layer."""
        return bool(self.before_forward or self.after_forward or self.before_backward or self.after_backward)

    def separate_layers(self) -> None:
        """``complete`` the pass, for a caller who may well do so after the next one, which then leaves out nothing."""
        self._went_inside = True
        self.complete()

    def complete(self) -> None:
        """Make all that the last pass has left out."""
        samples, self._samples = self._samples, None
        if samples is None:
            return
        with self.in_use():
            shown = dict(self.values)
            self.values.clear()
            for edge, tensor in samples.items():
                self.values[edge] = tensor.contiguous()
            for node in self.net.graph.nodes:
                if node.bottoms:
                    self._forward(node.index)
            for edge, tensor in shown.items():  # what a caller may have written since
                if self.values[edge].shape == tensor.shape:
                    self.values[edge].data.copy_(tensor.data)
                else:
                    self.values[edge] = tensor

    def forward(self, index: int, micro: int | None = None, *, grad: bool = True) -> None:
        for call in self.before_forward:
            call(index)
        self._forward(index, micro, grad=grad)
        for call in self.after_forward:
            call(index)

    def _forward(self, index: int, micro: int | None = None, *, grad: bool = True) -> None:
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

    def _separate(self, node: LayerNode, read: set[int]) -> None:
        """Copy tops that are views of a bottom, where Caffe's are not: writing to one must not change the other."""
        bottoms = {self.net.graph.edges[edge].blob for edge in node.bottoms}
        for edge in node.tops:
            if self.net.graph.edges[edge].blob not in bottoms and _memory_of(self.values[edge]) in read:
                self.values[edge] = self.values[edge].clone()

    def backward(self, index: int, micro: int | None = None, update: Update | None = None) -> None:
        for call in self.before_backward:
            call(index)
        if self.net.graph.nodes[index].needs_backward:
            self._backward(index, micro, update)
        for call in self.after_backward:
            call(index)

    def _backward(self, index: int, micro: int | None, update: Update | None) -> None:
        self.separate_layers()
        if index not in self.batches.outcome.segments:
            self._prepare_backward(index)
        if self.net.graph.nodes[index].type == "Python":  # its code may do more than to hand diffs on
            for edge in self.net.graph.nodes[index].tops:
                self.diff(edge)
        state = self.batches.outcome.segments[index]
        for leaf in state.leaves.values():
            leaf.grad = None
        super().backward(index, micro, update)
        self.batches.outcome.segments[index] = state  # for the next time

    def _prepare_backward(self, index: int) -> None:
        """Run the layer forward from what the blobs hold, so that it can run backward, as Caffe's layers do.

        This is needed without a forward pass of the layer, or if its parameters have changed since.
        """
        node = self.net.graph.nodes[index]
        layer = self.net.layer(node)
        overwritten = layer.in_place and not layer.elementwise
        if overwritten or not (layer.repeatable or node.type == "Python"):
            raise UserError(f'layer "{node.name}": backward needs a forward pass before it')
        tops = {edge: self.data(edge) for edge in node.tops}
        self._forward(index)
        for edge, shown in tops.items():
            if self.values[edge].shape == shown.shape:
                self.values[edge] = shown

    def close(self) -> None:
        self.closed = True
        super().close()

    def forget_passes(self) -> None:
        """Forget what a backward pass needs of the last forward pass, because parameters have changed."""
        if self.whole is not None:
            self.whole.forget()
        self.batches.outcome.segments.clear()

    def forget_blobs(self, fitted: int = -1) -> None:
        """Forget all blobs except the data of the net's inputs, because the shapes have changed.

        Args:
            fitted: layers up to this one have kept their shapes, and their blobs stay.
        """
        graph = self.net.graph
        self._samples = None  # a pass that left blobs out went through the whole net, so all of it was fitted
        if self.whole is not None:
            self.whole = WholePass(self.net)
        if fitted >= 0:
            for edge in graph.edges:
                if edge.producer > fitted:
                    self.values.pop(edge.index, None)
                    self.diffs.pop(edge.index, None)
            return
        inputs = {graph.blobs[name].index: self.data(graph.blobs[name].index) for name in graph.inputs}
        self.reset()
        self.feed(inputs)


def _memory_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
