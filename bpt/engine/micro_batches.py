"""Micro-batches under way on a rank: the pass of each, what it has left, and the outputs that they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bpt.engine.segment_state import MicroBatchState
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext


class MicroBatches:
    """Those whose first instruction has come, and whose last has not.

    Args:
        of_pass: how many a pass on the whole share is cut into.
        delay: see SegmentOperator.

    Attributes:
        states: by the number of the micro-batch.
        rotations: of each pass, by its first micro-batch; see PassContext.
        loss_scale: of those that begin in this iteration.
    """

    def __init__(self, of_pass: int, delay: int | None) -> None:
        self.of_pass = of_pass
        self.states: dict[int, MicroBatchState] = {}
        self.rotations: dict[int, float] = {}
        self.loss_scale = 1.0
        self._delay = delay
        self._iteration = self._first_pass = self._last = 0

    def begin(self, iteration: int, count: int, number: int, loss_scale: float) -> None:
        """An iteration of ``count`` micro-batches begins, at its ``number``-th pass."""
        self.loss_scale = loss_scale
        self._iteration, self._first_pass, self._last = iteration, number, count - 1

    def first_of(self, micro: int) -> int:
        """Return the first micro-batch of the same pass."""
        return micro - micro % self.of_pass

    def is_last(self, micro: int) -> bool:
        """Return whether nothing comes after it in this iteration."""
        return micro >= self._last

    def context_of(self, micro: int, run: PassContext) -> PassContext:
        """Of a micro-batch of this iteration, in the ``run``."""
        number, part = self._first_pass, None
        if self._delay is None:
            number += micro // self.of_pass
            part = micro % self.of_pass if self.of_pass > 1 else None
        return replace(run, iteration=self._iteration, pass_number=number, micro_batch=part, loss_scale=self.loss_scale)

    def state_of(self, micro: int, run: PassContext) -> MicroBatchState:
        """Return what its passes have left: an empty state before the first of them."""
        state = self.states.get(micro) or self.states.setdefault(micro, MicroBatchState(self.context_of(micro, run)))
        rotation = self.rotations.get(self.first_of(micro))
        if rotation is not None and rotation != state.context.rotation:
            state.context = replace(state.context, rotation=rotation)
        return state

    def end(self, micro: int) -> None:
        """No instruction will name it any more."""
        self.states.pop(micro, None)
        self.rotations.pop(micro, None)

    def clear(self) -> None:
        """None is under way any more."""
        self.states.clear()
        self.rotations.clear()


class PassOutputs:
    """The net's outputs and losses that are made here, of the micro-batches of the last pass."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._context = net.context
        self._edges = {edge.index for edge in (*net.graph.outputs, *net.graph.losses)}
        self._made: dict[int, list[Tensor]] = {}  # edge → of each micro-batch

    def draw(self, tops: Mapping[int, Tensor]) -> None:
        """Layers without bottoms have made these, for the whole share."""
        self._made.update({edge: [tops[edge]] for edge in self._edges.intersection(tops)})

    def add(self, state: MicroBatchState, edges: Sequence[int]) -> None:
        """A segment has made these edges of a micro-batch."""
        self._context = replace(state.context, micro_batch=None)
        for edge in self._edges.intersection(edges):
            if not state.context.micro_batch:  # the first, or the only one
                self._made[edge] = []
            self._made[edge].append(state.values[edge])

    def take(self) -> MicroBatchState:
        """Return those of the whole share, which are then forgotten."""
        made, self._made = self._made, {}
        return MicroBatchState(self._context, {edge: self._joined(edge, tensors) for edge, tensors in made.items()})

    def _joined(self, edge: int, tensors: Sequence[Tensor]) -> Tensor:
        if len(tensors) == 1:
            return tensors[0]
        node = self._net.graph.nodes[self._net.graph.edges[edge].producer]
        sums = node.tops.index(edge) < self._net.layer(node).sums_over_samples
        return torch.stack(list(tensors)).sum(0) if sums or not tensors[0].dim() else torch.cat(list(tensors))
