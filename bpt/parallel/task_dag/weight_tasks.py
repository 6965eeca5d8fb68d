"""Tasks of a layer that is split by its weights: by neurons, or by filters (BPT-CNN, section 4.1.2).

Forward, a task computes some neurons of the layer, ``y_i = Σ_j w_ij x_j + b_i``. Backward, the errors are split by
neurons of ``L_{l-1}``: a task computes ``δ_j^{l-1} = Σ_i w_ij δ_i^l`` (Eq. 18 and 20) for some j. The gradients are
split by neurons of ``L_l``: ``∂E/∂w_ij = δ_i^l x_j`` (Eq. 21) and the bias's (Eq. 22) for some i. So each task reads
or writes its own rows or columns of the weights, and nothing needs to be added up.

A convolution whose weights are many beside its blobs is split alike: its filters are the rows, its bottom's channels
the columns. By samples, each task would go through all weights, and the gradients would have to be added up.

Element-wise layers before a fully connected one belong to its tasks: forward the first task that needs their top makes
it, backward each task takes its own neurons through them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from bpt.nn.layers.base import Layer
from bpt.nn.layers.convolution import Convolution
from bpt.nn.layers.inner_product import InnerProduct
from bpt.parallel.task_dag.areas import even_ranges
from bpt.parallel.task_dag.blob_tasks import Read
from bpt.parallel.task_dag.block_tasks import BlockTasks
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import WHOLE, DagState, Key, like
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.execute import differentiate, kernel_errors


class WeightTasks(BlockTasks):
    """Tasks for some rows of the weights (neurons, filters) or some columns (inputs, channels) each."""

    def __init__(self, block: TaskBlock, draft: Draft, layer: InnerProduct | Convolution) -> None:
        super().__init__(block, draft)
        self._layer = layer
        self._node = block.nodes[-1]
        self._leading = [draft.net.layer(node) for node in block.nodes[:-1]]  # element-wise ones
        self._owners = [draft.net.graph.params[index].owner for index in self._node.params]
        self._trains = any(value.requires_grad for value in layer.blobs)

    @abstractmethod
    def flatten(self, blob: Tensor) -> Tensor:
        """Return a bottom with the columns of the weights on axis 1."""

    @abstractmethod
    def multiply(self, x: Tensor, rows: slice) -> Tensor:
        """Return the top's rows."""

    @abstractmethod
    def errors(self, diff: Tensor, x: Tensor, columns: slice, out: Tensor) -> None:
        """Write the diff of the bottom's ``columns`` into ``out``."""

    @abstractmethod
    def gradients(self, diff: Tensor, x: Tensor, rows: slice, out: Sequence[Tensor | None]) -> None:
        """Write the gradients of the weights' ``rows``, and those of the bias, into ``out``; not where it is ``None``.

        Args:
            diff: of the top's rows.
        """

    def _slices(self, axis: int) -> list[slice]:
        return [slice(*ends) for ends in even_ranges(self._layer.blob(0).shape[axis], self.block.strategy.parts)]

    def forward(self) -> None:
        needs, read = self.draft.values.read(self.bottom, (), 0, alone=False)
        works = [partial(self._forward, read, rows) for rows in self._slices(0)]
        self.draft.values.note(self.top, self.add(self.split, self.block.seconds, [needs] * len(works), works))

    def _forward(self, read: Read, rows: slice, run: DagState) -> None:
        blob, top = read(run), self.top
        assert blob is not None
        with kernel_errors(f'layer "{self._node.name}"', [blob]):
            raw = run.buffer(("raw", top), lambda: self.flatten(blob))  # a copy if channels lie side by side
            x = run.buffer(("inputs", top), lambda: _through(self._leading, raw))
            some = self.multiply(x, rows)
            shape = (len(some), self._layer.blob(0).shape[0], *some.shape[2:])
            run.values[top, WHOLE] = y = run.buffer(("top", top), lambda: like(shape, some))
            y[:, rows] = some
        flows = self._trains or self.wants_diff(run, self.bottom)
        run.flows[top] = run.grad and self._node.needs_backward and flows
        if run.grad and self.block.needs_backward:
            run.saved["raw", self.block.index] = raw
            run.saved["inputs", self.block.index] = x

    def backward(self) -> None:
        block, draft = self.block, self.draft
        needs, read = draft.read_diff(self.top, (), 0, alone=False)
        if draft.wants[self.bottom]:
            works = [partial(self._errors, read, columns) for columns in self._slices(1)]
            draft.diffs.note(self.bottom, self.add("errors", block.seconds, [needs] * len(works), works))
        if self._trains:
            slots = draft.slots(block.nodes)
            works = [partial(self._gradients, read, slots, rows) for rows in self._slices(0)]
            draft.contribute(slots, self.add("gradients", block.seconds, [needs] * len(works), works))

    def _errors(self, read: Read, columns: slice, run: DagState) -> None:
        diff, bottom = read(run), self.bottom
        if diff is None or not run.flows[bottom]:
            run.diffs[bottom, WHOLE] = None
            return
        raw = run.saved["raw", self.block.index]
        whole = run.buffer(("diff", bottom), lambda: like(tuple(raw.shape), raw))
        some = whole[:, columns]
        self.errors(diff, raw, columns, some)
        if self._leading:
            leaf = raw[:, columns].detach().requires_grad_()
            with torch.enable_grad():
                through = _through(self._leading, leaf)
            (grad,), _ = differentiate([through], [some], [leaf])
            if grad is None:
                some.zero_()
            else:
                some.copy_(grad)
        run.diffs[bottom, WHOLE] = whole.view(len(whole), *self.draft.net.graph.edges[bottom].shape[1:])

    def _gradients(self, read: Read, slots: Mapping[int, Key], rows: slice, run: DagState) -> None:
        diff = read(run)
        if diff is None:
            run.grads.update(dict.fromkeys(slots.values()))
            return
        out: list[Tensor | None] = [None, None]
        for position, owner in enumerate(self._owners):
            if owner in slots:
                grad = run.buffer(slots[owner], partial(torch.empty_like, self.draft.parameters[owner]))
                out[position] = grad.view(self._layer.blob(position).shape)[rows]
                run.grads[slots[owner]] = grad
        self.gradients(diff[:, rows], run.saved["inputs", self.block.index], rows, out)


def _through(layers: Sequence[Layer], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


class NeuronTasks(WeightTasks):
    """Tasks of a fully connected layer."""

    def __init__(self, block: TaskBlock, draft: Draft) -> None:
        layer = draft.net.layer(block.nodes[-1])
        assert isinstance(layer, InnerProduct)
        super().__init__(block, draft, layer)

    def flatten(self, blob: Tensor) -> Tensor:
        return blob.flatten(1)

    def multiply(self, x: Tensor, rows: slice) -> Tensor:
        some = torch.mm(self._layer.blob(0)[rows], x.t()).t()  # in this order, the weights are read as they lie
        return some.add_(self._layer.blob(1)[rows]) if self._layer.bias_term else some

    def errors(self, diff: Tensor, x: Tensor, columns: slice, out: Tensor) -> None:
        torch.mm(diff, self._layer.blob(0)[:, columns], out=out)

    def gradients(self, diff: Tensor, x: Tensor, rows: slice, out: Sequence[Tensor | None]) -> None:
        weight, bias = out
        if weight is not None:
            torch.mm(diff.t(), x, out=weight)
        if bias is not None:
            torch.sum(diff, 0, out=bias)


class FilterTasks(WeightTasks):
    """Tasks of a convolution."""

    def __init__(self, block: TaskBlock, draft: Draft) -> None:
        layer = draft.net.layer(block.nodes[-1])
        assert isinstance(layer, Convolution) and len(block.nodes) == 1 and layer.group == 1
        super().__init__(block, draft, layer)
        self._window = layer.window

    def flatten(self, blob: Tensor) -> Tensor:
        return blob

    def multiply(self, x: Tensor, rows: slice) -> Tensor:
        window, layer = self._window, self._layer
        bias = layer.blob(1)[rows] if layer.bias_term else None
        return torch.convolution(
            x, layer.blob(0)[rows], bias, window.stride, window.pad, window.dilation, False, (0,), 1
        )  # fmt: skip

    def errors(self, diff: Tensor, x: Tensor, columns: slice, out: Tensor) -> None:
        some, _, _ = self._differentiate(diff, x[:, columns], self._layer.blob(0)[:, columns], [True, False, False])
        assert some is not None
        out.copy_(some)

    def gradients(self, diff: Tensor, x: Tensor, rows: slice, out: Sequence[Tensor | None]) -> None:
        wants = [False, *(target is not None for target in out)]
        _, *grads = self._differentiate(diff, x, self._layer.blob(0)[rows], wants)
        for target, grad in zip(out, grads, strict=True):
            if target is not None:
                assert grad is not None
                target.copy_(grad)

    def _differentiate(
        self, diff: Tensor, x: Tensor, weight: Tensor, wants: list[bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return torch's backward of a convolution: of ``x``, ``weight`` and bias, as far as it is wanted."""
        window, axes = self._window, x.dim() - 2
        stride, pad, dilation = (
            values * axes if len(values) == 1 else values for values in (window.stride, window.pad, window.dilation)
        )
        grads: tuple[Tensor | None, Tensor | None, Tensor | None] = torch.ops.aten.convolution_backward(
            diff, x, weight, [weight.shape[0]], stride, pad, dilation, False, [0] * axes, 1, wants
        )  # fmt: skip
        return grads
