"""Tasks of layers that run as they are: on all samples, or each task on some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from bpt.engine.segment_state import SegmentState
from bpt.graph.layer_graph import LayerNode
from bpt.nn.layers.activation import ReLU
from bpt.nn.layers.convolution import Convolution
from bpt.parallel.task_dag.blob_tasks import Read, Work
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import WHOLE, DagState, Key
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.execute import Call, differentiate, run_layer
from bpt.parallel.task_dag.pointwise import convolve, is_pointwise
from bpt.parallel.task_dag.task_costs import BACKWARD

Reads = Mapping[int, Read]
Calls = Sequence[tuple[Call, LayerNode]]


def calls_of(block: TaskBlock, draft: Draft) -> Calls:
    """Return what runs each layer of the block: the layer itself, or an equal but faster call."""
    calls: list[tuple[Call, LayerNode]] = []
    before = None
    for node in block.nodes:
        layer = draft.net.layer(node)
        call: Call = layer
        if is_pointwise(layer) and not draft.net.precision.in_half.layers[node.index]:
            call = partial(convolve, layer)
        elif isinstance(layer, ReLU) and not layer.slope and isinstance(before, Convolution):
            call = torch.relu_  # nobody else reads what the convolution has made, its own backward neither
        calls.append((call, node))
        before = layer
    return calls


def forward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's forward, one a part."""
    bounds, parts, pinned = block.strategy.bounds, block.strategy.parts, block.strategy.pinned
    made = []
    for part in range(parts):
        needs, reads = list(draft.order_of(block)), {}
        for edge in block.bottoms:
            tasks, reads[edge] = draft.values.read(edge, bounds, part)
            needs += tasks
        key = (block.index, part if bounds else WHOLE)
        work = _forward(block, draft, key, reads, calls_of(block, draft))
        made.append([draft.tasks.add(block.part_name(part), block.seconds / parts, needs, work, pinned)])
    for edge in block.tops:
        draft.values.note(edge, made, bounds)
    draft.close(block, made)


def _forward(block: TaskBlock, draft: Draft, key: Key, reads: Reads, calls: Calls) -> Work:
    def work(run: DagState) -> None:
        state = SegmentState()
        env: dict[int, Tensor] = {}
        for edge, read in reads.items():
            value = read(run)
            assert value is not None
            wants = run.grad and run.flows[edge] and draft.wants[edge]
            env[edge] = state.leaves[edge] = value.detach().requires_grad_(wants)
        for call, node in calls:
            tops = run_layer(draft.net, call, node, env, run.grad)
            if not node.bottoms:
                tops = tuple(map(run.place, tops))
            for edge in node.bottoms:
                if edge not in block.tops:
                    del env[edge]  # to give memory back
            env.update(zip(node.tops, tops, strict=True))
        for edge in block.tops:
            run.flows[edge] = env[edge].requires_grad
            run.values[edge, key[1]] = env[edge].detach()
        if run.grad and block.needs_backward:
            state.tops = {edge: env[edge] for edge in block.tops}
            run.states[key] = state

    return work


def backward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's backward, one a part."""
    bounds, parts, pinned = block.strategy.bounds, block.strategy.parts, block.strategy.pinned
    made = []
    for part in range(parts):
        needs, reads = list(draft.order_of(block)), {}
        for edge in block.tops:
            tasks, reads[edge] = draft.read_diff(edge, bounds, part)
            needs += tasks
        slots = draft.slots(block.nodes)
        work = _backward(block, draft, (block.index, part if bounds else WHOLE), reads, slots)
        task = draft.tasks.add(block.part_name(part), BACKWARD * block.seconds / parts, needs, work, pinned)
        draft.contribute(slots, [task])
        made.append([task])
    for edge in block.bottoms:
        if draft.wants[edge]:
            draft.diffs.note(edge, made, bounds)
    draft.close(block, made)


def _backward(block: TaskBlock, draft: Draft, key: Key, reads: Reads, slots: Mapping[int, Key]) -> Work:
    def work(run: DagState) -> None:
        state = run.states.pop(key)
        diffs = [reads[edge](run) for edge in state.tops]
        leaves = {edge: leaf for edge, leaf in state.leaves.items() if leaf.requires_grad}
        of_leaves, of_parameters = differentiate(
            block.where, list(state.tops.values()), diffs, list(leaves.values()),
            [run.used(draft.parameters[index]) for index in slots],
        )  # fmt: skip
        by_edge = dict(zip(leaves, of_leaves, strict=True))
        for edge in block.bottoms:
            if draft.wants[edge]:
                run.diffs[edge, key[1]] = by_edge.get(edge)
        for slot, grad in zip(slots.values(), of_parameters, strict=True):
            run.leave(slot, grad)

    return work
