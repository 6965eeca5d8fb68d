"""Tasks of a convolution whose weights are many beside its blobs, split by filters (BPT-CNN, section 4.1.2).

As in ``neurons.py``: forward, a task computes the top's channels of some filters; backward, the errors are split by
channels of the bottom, the gradients by filters. By samples, each task would go through all weights, forward and
backward, and the gradients would have to be added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from bpt.nn.layers.convolution import Convolution
from bpt.parallel.task_dag.blob_tasks import Read, Work
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import WHOLE, DagState, Key, like
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.execute import backward_error, forward_error
from bpt.parallel.task_dag.neurons import spans


def _layer(block: TaskBlock, draft: Draft) -> Convolution:
    layer = draft.net.layer(block.nodes[0])
    assert isinstance(layer, Convolution) and len(block.nodes) == 1 and layer.group == 1
    return layer


def forward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's forward, each for some of the filters."""
    layer, (bottom,), (top,) = _layer(block, draft), block.bottoms, block.tops
    needs, read = draft.values.read(bottom, (), 0, alone=False)
    parts = spans(layer.blob(0).shape[0], block.strategy.parts)
    made = []
    for part, (first, last) in enumerate(parts):
        work = _forward(block, draft, layer, read, first, last)
        name = f"{block.name} filters {part + 1}/{len(parts)}"
        made.append(draft.tasks.add(name, block.seconds / len(parts), needs, work))
    draft.values.note(top, [made])


def _forward(block: TaskBlock, draft: Draft, layer: Convolution, read: Read, first: int, last: int) -> Work:
    (bottom,), (top,) = block.bottoms, block.tops
    window = layer.window

    @torch.no_grad()
    def work(run: DagState) -> None:
        x = read(run)
        assert x is not None
        weight = layer.blob(0)
        try:
            bias = layer.blob(1)[first:last] if layer.bias_term else None
            some = torch.convolution(
                x, weight[first:last], bias, window.stride, window.pad, window.dilation, False, (0,), 1
            )  # fmt: skip
            shape = (some.shape[0], weight.shape[0], *some.shape[2:])
            y = run.room(("top", top), lambda: like(shape, some))
            y[:, first:last] = some
        except (RuntimeError, MemoryError) as error:
            raise forward_error(block.nodes[0], error, [x]) from error
        flows = run.flows[bottom] and draft.wants[bottom]
        trains = any(value.requires_grad for value in layer.blobs)
        run.flows[top] = run.grad and block.needs_backward and (flows or trains)
        run.values[top, WHOLE] = y
        if run.grad and block.needs_backward:
            run.kept["bottom", block.index] = x

    return work


def backward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's backward: errors by channels of the bottom, gradients by filters."""
    layer, (bottom,), (top,) = _layer(block, draft), block.bottoms, block.tops
    needs, read = draft.read_diff(top, (), 0, alone=False)
    if draft.wants[bottom]:
        made = []
        channels = spans(layer.blob(0).shape[1], block.strategy.parts)
        for part, (first, last) in enumerate(channels):
            work = _errors(block, layer, read, first, last)
            name = f"{block.name} errors {part + 1}/{len(channels)}"
            made.append(draft.tasks.add(name, block.seconds / len(channels), needs, work))
        draft.diffs.note(bottom, [made])
    if any(value.requires_grad for value in layer.blobs):
        slots, filling = draft.slots(block.nodes), []
        filters = spans(layer.blob(0).shape[0], block.strategy.parts)
        for part, (first, last) in enumerate(filters):
            work = _gradients(block, draft, layer, read, slots, first, last)
            name = f"{block.name} gradients {part + 1}/{len(filters)}"
            filling.append(draft.tasks.add(name, block.seconds / len(filters), needs, work))
        draft.contribute(slots, filling)


def _differentiate(
    block: TaskBlock, layer: Convolution, diff: Tensor, x: Tensor, weight: Tensor, mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return torch's backward of a convolution: diff of ``x``, gradients of ``weight`` and bias, as ``mask`` wants."""
    window, axes = layer.window, x.dim() - 2
    stride, pad, dilation = (
        values * axes if len(values) == 1 else values for values in (window.stride, window.pad, window.dilation)
    )
    try:
        diffs: tuple[Tensor | None, Tensor | None, Tensor | None] = torch.ops.aten.convolution_backward(
            diff, x, weight, [weight.shape[0]], stride, pad, dilation, False, [0] * axes, 1, mask
        )  # fmt: skip
    except (RuntimeError, MemoryError) as error:
        raise backward_error(block.where, error) from error
    return diffs


def _errors(block: TaskBlock, layer: Convolution, read: Read, first: int, last: int) -> Work:
    (bottom,) = block.bottoms

    @torch.no_grad()
    def work(run: DagState) -> None:
        diff = read(run)
        if diff is None or not run.flows[bottom]:
            run.diffs[bottom, WHOLE] = None
            return
        x, weight = run.kept["bottom", block.index], layer.blob(0)
        some, _, _ = _differentiate(block, layer, diff, x[:, first:last], weight[:, first:last], [True, False, False])
        assert some is not None
        whole = run.room(("diff", bottom), lambda: like(tuple(x.shape), x))
        whole[:, first:last] = some
        run.diffs[bottom, WHOLE] = whole

    return work


def _gradients(
    block: TaskBlock, draft: Draft, layer: Convolution, read: Read, slots: Mapping[int, Key], first: int, last: int
) -> Work:
    owners = [draft.net.graph.params[index].owner for index in block.nodes[0].params]

    @torch.no_grad()
    def work(run: DagState) -> None:
        diff = read(run)
        if diff is None:
            for key in slots.values():
                run.leave(key, None)
            return
        mask = [False, *(owner in slots for owner in owners), False][:3]
        grads = _differentiate(
            block, layer, diff[:, first:last], run.kept["bottom", block.index], layer.blob(0)[first:last], mask
        )[1:]
        for position, owner in enumerate(owners):
            if owner in slots:
                value, grad = draft.parameters[owner], grads[position]
                assert grad is not None
                whole = run.room(slots[owner], partial(torch.empty_like, value))
                whole.view(layer.blob(position).shape)[first:last] = grad
                run.leave(slots[owner], whole)

    return work
