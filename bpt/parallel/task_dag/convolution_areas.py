"""Tasks of a convolution, split by areas of its top (BPT-CNN, section 4.1.1, Algorithm 4.1).

For batches of too few samples. Forward, each task reads its area of the bottom and makes its rows and columns of the
top; the element-wise layers behind the convolution, too. Backward, each task makes the diff of its area; where areas
overlap these are added, in order of the areas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bpt.engine.segment_state import SegmentState
from bpt.nn.layers.convolution import Convolution
from bpt.parallel.task_dag.areas import Area, decompose
from bpt.parallel.task_dag.blob_tasks import Read, Work
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import WHOLE, DagState, Key, like
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.execute import backward_error, differentiate, forward_error, run_layer
from bpt.parallel.task_dag.layers_block import calls_of
from bpt.parallel.task_dag.split_strategy import axes_of
from bpt.parallel.task_dag.task_costs import BACKWARD

ROWS = 2  # the axis; columns are the one behind it


def _areas(block: TaskBlock, draft: Draft) -> list[Area]:
    layer = draft.net.layer(block.nodes[0])
    assert isinstance(layer, Convolution)
    return decompose(axes_of(layer, draft.net.graph.edges[block.bottoms[0]].shape), block.strategy.grid)


def _of_bottom(blob: Tensor, area: Area) -> Tensor:
    """Return the places of a bottom, or of its diff, that an area reads."""
    for axis, span in enumerate(area, ROWS):
        blob = blob.narrow(axis, span.begin, span.end - span.begin)
    return blob


def _of_top(blob: Tensor, area: Area) -> Tensor:
    """Return the places of a top, or of its diff, that are computed from an area."""
    for axis, span in enumerate(area, ROWS):
        blob = blob.narrow(axis, span.first, span.last - span.first)
    return blob


def forward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's forward, one an area."""
    (bottom,), (top,) = block.bottoms, block.tops
    needs, read = draft.values.read(bottom, (), 0, alone=False)
    made = []
    for part, area in enumerate(_areas(block, draft)):
        work = _forward(block, draft, read, part, area)
        made.append(draft.tasks.add(block.part_name(part), block.seconds / block.strategy.parts, needs, work))
    draft.values.note(top, [made])


def _forward(block: TaskBlock, draft: Draft, read: Read, part: int, area: Area) -> Work:
    (bottom,), (top,) = block.bottoms, block.tops
    convolution = draft.net.layer(block.nodes[0])
    assert isinstance(convolution, Convolution)
    others = calls_of(block, draft)[1:]
    places = draft.net.graph.edges[top].shape[ROWS:]

    def work(run: DagState) -> None:
        blob = read(run)
        assert blob is not None
        wants = run.grad and run.flows[bottom] and draft.wants[bottom]
        leaf = _of_bottom(blob, area).detach().requires_grad_(wants)
        try:
            with torch.set_grad_enabled(run.grad and block.nodes[0].needs_backward):
                y = convolve(convolution, leaf, area)
        except (RuntimeError, MemoryError) as error:
            raise forward_error(block.nodes[0], error, [leaf]) from error
        env = {block.nodes[0].tops[0]: y}
        for call, node in others:
            env.update(zip(node.tops, run_layer(draft.net, call, node, env, run.grad), strict=True))
        y = env[top]
        whole = run.room(("top", top), lambda: like((*y.shape[:ROWS], *places), y.detach()))
        _of_top(whole, area).copy_(y.detach())
        run.flows[top] = y.requires_grad
        run.values[top, WHOLE] = whole
        if run.grad and block.needs_backward:
            run.states[block.index, part] = SegmentState({bottom: leaf}, {top: y})

    return work


def convolve(layer: Convolution, x: Tensor, area: Area) -> Tensor:
    """Return the places of the layer's top in ``area``.

    Args:
        x: the area of the bottom, ``(N, channels, rows of the area, columns of the area, …)``.
    """
    window = layer.window
    axes = x.dim() - 2
    zeros = [number for span in reversed(area) for number in (span.before, span.after)]
    if any(zeros):
        x = functional.pad(x, [0, 0] * (axes - len(area)) + zeros)
    pad = [0] * len(area) + [window.pad[axis if len(window.pad) > 1 else 0] for axis in range(len(area), axes)]
    bias = layer.blob(1) if layer.bias_term else None
    return torch.convolution(
        x, layer.blob(0), bias, window.stride, pad, window.dilation, False, (0,), layer.group
    )  # fmt: skip


def backward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's backward: one an area, and one that puts the diffs of the areas together."""
    (bottom,), (top,) = block.bottoms, block.tops
    needs, read = draft.read_diff(top, (), 0, alone=False)
    areas, made = _areas(block, draft), []
    for part, area in enumerate(areas):
        slots = draft.slots(block.nodes)
        work = _backward(block, draft, read, part, area, slots)
        cost = BACKWARD * block.seconds / len(areas)
        made.append(draft.tasks.add(block.part_name(part), cost, needs, work))
        draft.contribute(slots, made[-1:])
    if draft.wants[bottom]:
        join = draft.tasks.add(f"{block.name} overlap", 0.0, made, _overlap(block, draft, areas))
        draft.diffs.note(bottom, [[join]])


def _backward(block: TaskBlock, draft: Draft, read: Read, part: int, area: Area, slots: Mapping[int, Key]) -> Work:
    (bottom,), (top,) = block.bottoms, block.tops

    def work(run: DagState) -> None:
        state = run.states.pop((block.index, part))
        diff = read(run)
        if diff is not None:
            diff = _of_top(diff, area)
        leaf = state.leaves[bottom]
        of_leaves, of_parameters = differentiate(
            block.where, [state.tops[top]], [diff], [leaf] if leaf.requires_grad else [],
            [run.used(draft.parameters[index]) for index in slots],
        )  # fmt: skip
        if of_leaves and of_leaves[0] is not None:
            run.kept[block.index, part] = of_leaves[0]
        for slot, grad in zip(slots.values(), of_parameters, strict=True):
            run.leave(slot, grad)

    return work


def _overlap(block: TaskBlock, draft: Draft, areas: Sequence[Area]) -> Work:
    (bottom,) = block.bottoms
    places = draft.net.graph.edges[bottom].shape[ROWS:]

    @torch.no_grad()
    def work(run: DagState) -> None:
        pieces = [run.kept.pop((block.index, part), None) for part in range(len(areas))]
        run.diffs[bottom, WHOLE] = None
        for piece, area in zip(pieces, areas, strict=True):
            if piece is None:
                continue
            try:
                whole = run.room(("diff", bottom), partial(_zeros, (*piece.shape[:ROWS], *places), piece))
            except (RuntimeError, MemoryError) as error:
                raise backward_error(block.where, error) from error
            _of_bottom(whole, area).add_(piece)
            run.diffs[bottom, WHOLE] = whole

    return work


def _zeros(shape: tuple[int, ...], model: Tensor) -> Tensor:
    return like(shape, model).zero_()
