"""BlobOperator: runs a net layer by layer, with one memory for each blob, as in Caffe."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bpt.base.errors import UserError
from bpt.caffe.core.whole_pass import WholePass, copied, share_memory
from bpt.engine.compute import LibraryCompute, Update
from bpt.engine.operator import Operator
from bpt.engine.segment_state import MicroBatchState
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.segments import per_layer
from bpt.nn.layers import DataLayer
from bpt.nn.net import Net

Callback = Callable[[int], object]
"""A function that is called with the number of a layer."""


class BlobMemory(dict[int, Tensor]):
    """Tensors by edge; all versions of a blob that layers rewrite in place share one entry, the last one written.

    A version with a ``loss_weight`` has its own entry: the weight is its diff and must outlast the backward pass.
    Tensors in half precision are stored in single precision, because numpy has no bfloat16; layers cast them back
    without loss.
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
        wide = tensor if tensor.dtype == torch.float32 else tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        super().__setitem__(self._place[edge], wide)

    def __contains__(self, edge: object) -> bool:
        return isinstance(edge, int) and super().__contains__(self._place[edge])

    def get(self, edge: int, default: Any = None) -> Any:
        return super().get(self._place[edge], default)

    def pop(self, edge: int, default: Any = None) -> Any:
        return super().pop(self._place[edge], default)


class BlobOperator(Operator):
    """Runs each layer of a net as a segment of its own: a pass may start and end anywhere, and backward may repeat.

    ``values`` and ``diffs`` are the memory of the blobs, which the caller may read and write.

    If ``whole`` is set, a pass through the whole net may leave blobs out (``forward_whole``). The first access to one
    of them completes the pass (``complete``): all layers run one by one on the samples of that pass, and the result is
    the same as if they had done so from the start.

    Attributes:
        whole: runs the net as one fused pass; ``None``: layer by layer only.
        in_use: opens a scope in which the blobs' tensors may be replaced.
        before_forward, after_forward, before_backward, after_backward: functions to call at each layer of a pass.
    """

    def __init__(self, net: Net, device: torch.device | str) -> None:
        memory = MicroBatchState(net.context, BlobMemory(net.graph), BlobMemory(net.graph))
        compute = partial(LibraryCompute, keeps_graphs=True)
        super().__init__(net, per_layer(net.graph), device, compute=compute, state=memory)
        self.closed = False
        self.whole: WholePass | None = None
        self.in_use: Callable[[], AbstractContextManager[object]] = nullcontext
        self.before_forward: list[Callback] = []
        self.after_forward: list[Callback] = []
        self.before_backward: list[Callback] = []
        self.after_backward: list[Callback] = []
        self._samples: dict[int, Tensor] | None = None  # inputs of a pass that has left blobs out
        self._watched: set[int] = set()  # edges that the caller has read since the last pass
        self._went_inside = False  # whether the caller has needed more than blobs since the last pass

    @property
    def number(self) -> torch.dtype:
        """The number type of all blobs."""
        return self.net.context.precision.compute

    def data(self, edge: int) -> Tensor:
        """Return the data of a blob, which are zeros if nothing has written them yet."""
        tensor: Tensor | None = self.values.get(edge)
        if tensor is not None:
            return tensor
        self.complete()
        if edge not in self.values:
            self.feed({edge: torch.zeros(self.net.graph.edges[edge].shape, dtype=self.number)})
        return self.values[edge]

    def watch(self, edge: int) -> Tensor:
        """Return the data of a blob that the caller may read after every pass."""
        self._watched.add(edge)
        return self.data(edge)

    def parameter(self, value: nn.Parameter) -> nn.Parameter:
        """Return a parameter that the caller may write to."""
        self.separate_layers()
        if self.whole is not None:
            self.whole.forget()
        return value

    def diff(self, edge: int) -> Tensor:
        """Return the diff of a blob; before it is written, it is the ``loss_weight`` of a loss, else zeros."""
        if edge not in self.diffs:
            info = self.net.graph.edges[edge]
            start = info.loss_weight if info.consumer is None else 0.0  # for a consumed blob, the pass adds the weight
            self.diffs[edge] = torch.full(self.shape(edge), start, dtype=self.number, device=self.device)
        return self.diffs[edge]

    def shape(self, edge: int) -> tuple[int, ...]:
        """Return the current shape of a blob's data."""
        tensor: Tensor | None = self.values.get(edge)
        return self.net.graph.edges[edge].shape if tensor is None else tuple(tensor.shape)

    def forward_whole(self, watched: Collection[int]) -> bool:
        """Run the whole net as one fused pass if possible and worth it, without the blobs that nobody reads.

        Args:
            watched: edges that the caller reads.

        Returns:
            Whether the pass has run.
        """
        wanted, inside, whole, values = self._watched.union(watched), self._went_inside, self.whole, self.values
        self._watched, self._went_inside = set(), False
        if whole is None or not whole.fits or inside or self.calls:
            self._samples = None  # the pass layer by layer computes all blobs again
            return False
        sources = whole.sources
        for index in sources.drawn:
            self._forward(index)
        made = {edge: self.data(edge) for edge in sources.tops}
        samples = {edge: copied(tensor) for edge, tensor in made.items()}
        tops: dict[int, Tensor] = {}
        if all(samples[edge].shape == shape for edge, shape in sources.tops.items()):
            tops = whole.run(samples, wanted)
            whole.fits = not share_memory([*samples.values(), *tops.values()])
        values.clear()
        if tops and whole.fits:
            self._samples = samples
            segments = self.batches.outcome.segments
            for index in sources.readers if segments else ():
                segments.pop(index, None)
            for edge, tensor in (*made.items(), *tops.items()):
                values[edge] = tensor
        else:  # a layer must report a wrong shape, or tensors share memory that Caffe's blobs do not share
            self._samples = made
            self.complete()
        return True

    @property
    def calls(self) -> bool:
        """Whether any callback is set."""
        return bool(self.before_forward or self.after_forward or self.before_backward or self.after_backward)

    def separate_layers(self) -> None:
        """Complete this pass, and let the next one leave no blobs out, because its caller may need them again."""
        self._went_inside = True
        self.complete()

    def complete(self) -> None:
        """Compute all blobs that the last pass has left out."""
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
            for edge, tensor in shown.items():  # the caller may have written to these since
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
        """Copy tops that share a bottom's memory if Caffe's do not: writing to one must not change the other."""
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
        if self.net.graph.nodes[index].type == "Python":  # its backward may read and write any diff of its tops
            for edge in self.net.graph.nodes[index].tops:
                self.diff(edge)
        state = self.batches.outcome.segments[index]
        for leaf in state.leaves.values():
            leaf.grad = None
        super().backward(index, micro, update)
        self.batches.outcome.segments[index] = state  # backward may be repeated

    def _prepare_backward(self, index: int) -> None:
        """Run the layer forward on its current bottoms, so that it can run backward as Caffe's layers do.

        This is needed if the layer has had no forward pass, or if its parameters have changed since.
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
        """Drop the state that a backward pass needs from the last forward pass, because parameters have changed."""
        if self.whole is not None:
            self.whole.forget()
        self.batches.outcome.segments.clear()

    def forget_blobs(self, fitted: int = -1) -> None:
        """Forget all blobs except the data of the net's inputs, because the shapes have changed.

        Args:
            fitted: number of the last layer that has kept its shapes, and so its blobs.
        """
        graph = self.net.graph
        self._samples = None  # a pass that left blobs out ran the whole net, so all shapes did fit
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
