"""Tasks of a fully connected layer, split by neurons (BPT-CNN, section 4.1.2).

Forward, a task computes some neurons of the layer, ``y_i = Σ_j w_ij x_j + b_i``. Backward, the errors are split by
neurons of ``L_{l-1}``: a task computes ``δ_j^{l-1} = Σ_i w_ij δ_i^l`` (Eq. 18 and 20) for some j. The gradients are
split by neurons of ``L_l``: ``∂E/∂w_ij = δ_i^l x_j`` (Eq. 21) and the bias's (Eq. 22) for some i. So each task reads
or writes its own rows or columns of the weights, and nothing needs to be added up.

Element-wise layers before it belong to its tasks: forward the first task that needs their top makes it, backward each
task takes its own neurons through them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from bpt.nn.layers.base import Layer
from bpt.nn.layers.inner_product import InnerProduct
from bpt.parallel.task_dag.blob_tasks import Read, Work
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import WHOLE, DagState, Key
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.execute import backward_error, differentiate, forward_error

Spans = list[tuple[int, int]]

RAW, INPUTS = 0, 1  # what is kept: the block's bottom, and that of its fully connected layer


def spans(count: int, parts: int) -> Spans:
    """Return ``count`` neurons in ``parts`` runs of nearly equal length; fewer runs if there are not enough."""
    parts = min(parts, count)
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def _layer(block: TaskBlock, draft: Draft) -> InnerProduct:
    layer = draft.net.layer(block.nodes[-1])
    assert isinstance(layer, InnerProduct)
    return layer


def _leading(block: TaskBlock, draft: Draft) -> list[Layer]:
    """Return the element-wise layers before the fully connected one."""
    return [draft.net.layer(node) for node in block.nodes[:-1]]


def forward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's forward, each for some of the layer's neurons."""
    layer, (bottom,), (top,) = _layer(block, draft), block.bottoms, block.tops
    neurons = layer.blob(0).shape[0]
    needs, read = draft.values.read(bottom, (), 0, alone=False)
    made = []
    parts = spans(neurons, block.strategy.parts)
    for part, (first, last) in enumerate(parts):
        work = _forward(block, draft, layer, read, first, last)
        name = f"{block.name} neurons {part + 1}/{len(parts)}"
        made.append(draft.tasks.add(name, block.seconds / len(parts), needs, work))
    draft.values.note(top, [made])


def _forward(block: TaskBlock, draft: Draft, layer: InnerProduct, read: Read, first: int, last: int) -> Work:
    (bottom,), (top,) = block.bottoms, block.tops
    leading = _leading(block, draft)

    @torch.no_grad()
    def work(run: DagState) -> None:
        blob = read(run)
        assert blob is not None
        try:
            raw = run.room(("raw", top), lambda: blob.flatten(1))  # a copy if channels lie side by side
            x = run.room(("inputs", top), lambda: _through(leading, raw))
            weight = layer.blob(0)
            y = run.room(("top", top), lambda: x.new_empty(x.shape[0], weight.shape[0]))
            some = torch.mm(weight[first:last], x.t()).t()  # in this order, the weights are read as they lie
            if layer.bias_term:
                torch.add(some, layer.blob(1)[first:last], out=y[:, first:last])
            else:
                y[:, first:last] = some
        except (RuntimeError, MemoryError) as error:
            raise forward_error(block.nodes[-1], error, [blob]) from error
        flows = run.flows[bottom] and draft.wants[bottom]
        trains = any(value.requires_grad for value in layer.blobs)
        run.flows[top] = run.grad and block.nodes[-1].needs_backward and (flows or trains)
        run.values[top, WHOLE] = y
        if run.grad and block.needs_backward:
            run.kept[block.index, RAW] = raw
            run.kept[block.index, INPUTS] = x

    return work


def _through(layers: Sequence[Layer], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def backward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's backward: errors by the neurons before the layer, gradients by its own."""
    layer, (bottom,), (top,) = _layer(block, draft), block.bottoms, block.tops
    neurons, inputs = layer.blob(0).shape
    needs, read = draft.read_diff(top, (), 0, alone=False)
    made = []
    if draft.wants[bottom]:
        columns = spans(inputs, block.strategy.parts)
        for part, (first, last) in enumerate(columns):
            work = _guarded(block, _errors(block, draft, layer, read, first, last))
            name = f"{block.name} errors {part + 1}/{len(columns)}"
            made.append(draft.tasks.add(name, block.seconds / len(columns), needs, work))
        draft.diffs.note(bottom, [made])
    if any(value.requires_grad for value in layer.blobs):
        slots = draft.slots(block.nodes)
        rows, filling = spans(neurons, block.strategy.parts), []
        for part, (first, last) in enumerate(rows):
            work = _guarded(block, _gradients(block, draft, layer, read, slots, first, last))
            name = f"{block.name} gradients {part + 1}/{len(rows)}"
            filling.append(draft.tasks.add(name, block.seconds / len(rows), needs, work))
        draft.contribute(slots, filling)


def _errors(block: TaskBlock, draft: Draft, layer: InnerProduct, read: Read, first: int, last: int) -> Work:
    (bottom,) = block.bottoms
    shape = draft.net.graph.edges[bottom].shape[1:]
    leading = _leading(block, draft)

    @torch.no_grad()
    def work(run: DagState) -> None:
        diff = read(run)
        if diff is None or not run.flows[bottom]:
            run.diffs[bottom, WHOLE] = None
            return
        raw = run.kept[block.index, RAW]
        flat = run.room(("diff", bottom), lambda: torch.empty_like(raw))
        some = flat[:, first:last]
        torch.mm(diff, layer.blob(0)[:, first:last], out=some)
        if leading:
            leaf = raw[:, first:last].detach().requires_grad_()
            with torch.enable_grad():
                through = _through(leading, leaf)
            (grad,), _ = differentiate(block.where, [through], [some], [leaf], [])
            if grad is None:
                some.zero_()
            else:
                some.copy_(grad)
        run.diffs[bottom, WHOLE] = flat.view(len(flat), *shape)

    return work


def _gradients(
    block: TaskBlock, draft: Draft, layer: InnerProduct, read: Read, slots: Mapping[int, Key], first: int, last: int
) -> Work:
    owners = [draft.net.graph.params[index].owner for index in block.nodes[-1].params]

    @torch.no_grad()
    def work(run: DagState) -> None:
        diff = read(run)
        for position, owner in enumerate(owners):
            if owner not in slots:
                continue
            key, value = slots[owner], draft.parameters[owner]
            if diff is None:
                run.leave(key, None)
                continue
            grad = run.room(key, partial(torch.empty_like, value))
            target = grad.view(layer.blob(position).shape)[first:last]
            some = diff[:, first:last]
            if position:
                torch.sum(some, 0, out=target)
            else:
                torch.mm(some.t(), run.kept[block.index, INPUTS], out=target)
            run.leave(key, grad)

    return work


def _guarded(block: TaskBlock, work: Work) -> Work:
    def guarded(run: DagState) -> None:
        try:
            work(run)
        except (RuntimeError, MemoryError) as error:
            raise backward_error(block.where, error) from error

    return guarded
