"""Tasks of layers that run as they are: on all samples, or each task on some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from bpt.engine.segment_state import SegmentState
from bpt.graph.layer_graph import LayerNode
from bpt.nn.layers.activation import ReLU
from bpt.nn.layers.convolution import Convolution
from bpt.parallel.task_dag.blob_tasks import Read
from bpt.parallel.task_dag.block_tasks import BlockTasks
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import WHOLE, DagState, Key
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.execute import Call, differentiate, run_layer
from bpt.parallel.task_dag.pointwise import convolve, is_pointwise
from bpt.parallel.task_dag.task_costs import BACKWARD

Reads = Mapping[int, Read]
Calls = Sequence[tuple[Call, LayerNode]]


def calls_of(block: TaskBlock, draft: Draft) -> list[tuple[Call, LayerNode]]:
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


class LayerTasks(BlockTasks):
    """One task a part, which runs all layers of the block on the part's samples."""

    def forward(self) -> None:
        block, draft, strategy = self.block, self.draft, self.block.strategy
        needs, works = [], []
        for part in range(strategy.parts):
            tasks, reads = self._reads(draft.values.read, block.bottoms, part)
            needs.append(tasks)
            works.append(partial(self._forward, part, reads, self.calls(part)))
        made = self.add(self.split, block.seconds, needs, works, strategy.pinned)
        for edge in block.tops:
            draft.values.note(edge, made, strategy.bounds)
        draft.close(block, made)

    def backward(self) -> None:
        block, draft, strategy = self.block, self.draft, self.block.strategy
        needs, works, slots = [], [], []
        for part in range(strategy.parts):
            tasks, reads = self._reads(draft.read_diff, block.tops, part)
            needs.append(tasks)
            slots.append(draft.slots(block.nodes))
            works.append(partial(self._backward, part, reads, slots[-1]))
        made = self.add(self.split, BACKWARD * block.seconds, needs, works, strategy.pinned)
        for own, task in zip(slots, made, strict=True):
            draft.contribute(own, [task])
        self.note_diffs(made)
        draft.close(block, made)

    def _reads(
        self, read: Callable[..., tuple[list[int], Read]], edges: Sequence[int], part: int
    ) -> tuple[list[int], Reads]:
        """Return the tasks that a part waits for, and the readers of its blobs or diffs."""
        needs, reads = self.draft.order_of(self.block), {}
        bounds = self.block.strategy.bounds
        for edge in edges:
            tasks, reads[edge] = read(edge, bounds, part, alone=bool(bounds) or self.block.strategy.parts == 1)
            needs += tasks
        return needs, reads

    def _forward(self, part: int, reads: Reads, calls: Calls, run: DagState) -> None:
        block, state = self.block, SegmentState()
        env: dict[int, Tensor] = {}
        for edge, read in reads.items():
            value = read(run)
            assert value is not None
            leaf = self.of_bottom(value, part).detach().requires_grad_(self.wants_diff(run, edge))
            env[edge] = state.leaves[edge] = leaf
        for call, node in calls:
            tops = run_layer(self.draft.net, call, node, env, run.grad)
            if not node.bottoms:
                tops = tuple(map(run.place, tops))
            for edge in node.bottoms:
                if edge not in block.tops:
                    del env[edge]  # to give memory back
            env.update(zip(node.tops, tops, strict=True))
        for edge in block.tops:
            run.flows[edge] = env[edge].requires_grad
            self.store_top(run, edge, part, env[edge].detach())
        if run.grad and block.needs_backward:
            state.tops = {edge: env[edge] for edge in block.tops}
            run.states[block.index, part] = state

    def _backward(self, part: int, reads: Reads, slots: Mapping[int, Key], run: DagState) -> None:
        state = run.states.pop((self.block.index, part))
        diffs = [None if (diff := reads[edge](run)) is None else self.of_top(diff, part) for edge in state.tops]
        leaves = {edge: leaf for edge, leaf in state.leaves.items() if leaf.requires_grad}
        parameters = [run.used(self.draft.parameters[index]) for index in slots]
        of_leaves, of_parameters = differentiate(list(state.tops.values()), diffs, list(leaves.values()), parameters)
        self.store_diffs(run, part, dict(zip(leaves, of_leaves, strict=True)))
        run.grads.update(zip(slots.values(), of_parameters, strict=True))

    # The parts of blobs

    def calls(self, part: int) -> Calls:
        """Return what runs each layer on a part."""
        return calls_of(self.block, self.draft)

    def of_bottom(self, blob: Tensor, part: int) -> Tensor:
        """Return what a part needs of what its reader of a bottom gives."""
        return blob

    def of_top(self, diff: Tensor, part: int) -> Tensor:
        """Return what a part needs of what its reader of a top's diff gives."""
        return diff

    def store_top(self, run: DagState, edge: int, part: int, value: Tensor) -> None:
        """Store what a part has made of a top."""
        run.values[edge, self._key(part)] = value

    def store_diffs(self, run: DagState, part: int, diffs: Mapping[int, Tensor | None]) -> None:
        """Store what a part has made of the bottoms' diffs."""
        for edge in self.block.bottoms:
            if self.draft.wants[edge]:
                run.diffs[edge, self._key(part)] = diffs.get(edge)

    def note_diffs(self, made: Sequence[int]) -> None:
        """Note that the tasks ``made``, one a part, make the bottoms' diffs."""
        for edge in self.block.bottoms:
            if self.draft.wants[edge]:
                self.draft.diffs.note(edge, made, self.block.strategy.bounds)

    def _key(self, part: int) -> int:
        return part if self.block.strategy.bounds else WHOLE
