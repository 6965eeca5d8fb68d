"""Micro-batches under way on a rank: the pass of each, what it has left, and the outputs that they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bpt.engine.scheduler import TEST_BATCH
from bpt.engine.segment_state import MicroBatchState
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext


class MicroBatches:
    """The micro-batches whose first instruction has come, and whose last has not.

    Args:
        num_of_pass: how many a pass on the whole share is cut into.

    Attributes:
        states: what the passes have left, by the number of the micro-batch.
        rotations: the rotation of the shares in each pass (PassContext), by the first micro-batch of the pass.
    """

    def __init__(self, net: Net, num_of_pass: int) -> None:
        self.num_of_pass = num_of_pass
        self.states: dict[int, MicroBatchState] = {}
        self.rotations: dict[int, float] = {}
        self._net = net
        self._loss_scale = 1.0
        self._iteration = self._first_pass = self._last = 0

    def begin(self, iteration: int, count: int, number: int, loss_scale: float) -> None:
        """Begin an iteration of ``count`` micro-batches, at its ``number``-th pass."""
        self._loss_scale = loss_scale
        self._iteration, self._first_pass, self._last = iteration, number, count - 1

    def first_of(self, micro: int) -> int:
        """Return the first micro-batch of the same pass."""
        return micro - micro % self.num_of_pass

    def has_next(self, micro: int) -> bool:
        """Return whether another micro-batch of this iteration follows."""
        return micro < self._last

    def context_of(self, micro: int) -> PassContext:
        """Return the context of a micro-batch that begins in this iteration."""
        part = micro % self.num_of_pass if self.num_of_pass > 1 else None
        return self._context(self._first_pass + micro // self.num_of_pass, part)

    def _context(self, number: int, part: int | None) -> PassContext:
        return replace(
            self._net.context,
            iteration=self._iteration,
            pass_number=number,
            micro_batch=part,
            loss_scale=self._loss_scale,
        )

    def state_of(self, micro: int) -> MicroBatchState:
        """Return what the passes of a micro-batch have left: an empty state before the first of them."""
        state = self.states.get(micro) or self.states.setdefault(micro, MicroBatchState(self.context_of(micro)))
        rotation = self.rotations.get(self.first_of(micro))
        if rotation is not None and rotation != state.context.rotation:
            state.context = replace(state.context, rotation=rotation)
        return state

    def states_from(self, micro: int, count: int) -> list[MicroBatchState]:
        """Return the states of ``count`` micro-batches from ``micro`` on."""
        return [self.state_of(micro + part) for part in range(count)]

    def end(self, micro: int) -> None:
        """Drop a micro-batch that no instruction names any more."""
        self.states.pop(micro, None)
        self.rotations.pop(micro, None)

    def end_iteration(self) -> None:
        """Drop what is not under way any more when all passes of an iteration, or of a test, have ended."""
        self.clear()

    def clear(self) -> None:
        """Drop all micro-batches."""
        self.states.clear()
        self.rotations.clear()


class DelayedBatches(MicroBatches):
    """Batches whose backward pass comes some iterations after their forward pass, and which are not divided.

    Their number is that of the iteration in which they begin.
    """

    def __init__(self, net: Net) -> None:
        super().__init__(net, 1)

    def has_next(self, micro: int) -> bool:
        return False

    def context_of(self, micro: int) -> PassContext:
        return self._context(self._first_pass, None)

    def end_iteration(self) -> None:
        """Drop the batch of a test; those that are trained stay under way."""
        self.end(TEST_BATCH)


class PassOutputs:
    """The net's outputs and losses that are made on this rank, of the micro-batches of the last pass."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._context = net.context
        self._edges = {edge.index for edge in (*net.graph.outputs, *net.graph.losses)}
        self._made: dict[int, list[Tensor]] = {}  # edge → of each micro-batch

    def set_whole(self, tops: Mapping[int, Tensor]) -> None:
        """Set the outputs that layers without bottoms have made, for the whole share."""
        self._made.update({edge: [tops[edge]] for edge in self._edges.intersection(tops)})

    def add(self, state: MicroBatchState, edges: Sequence[int]) -> None:
        """Add the outputs among these edges, which a segment has made of a micro-batch."""
        self._context = replace(state.context, micro_batch=None)
        for edge in self._edges.intersection(edges).intersection(state.values):
            if not state.context.micro_batch:  # the first, or the only one
                self._made[edge] = []
            self._made[edge].append(state.values[edge])

    def pop(self) -> MicroBatchState:
        """Return the outputs of the whole share, and forget them."""
        made, self._made = self._made, {}
        return MicroBatchState(self._context, {edge: self._join(edge, tensors) for edge, tensors in made.items()})

    def _join(self, edge: int, tensors: Sequence[Tensor]) -> Tensor:
        if len(tensors) == 1:
            return tensors[0]
        node = self._net.graph.nodes[self._net.graph.edges[edge].producer]
        sums = node.tops.index(edge) < self._net.layer(node).sums_over_samples
        return torch.stack(list(tensors)).sum(0) if sums or not tensors[0].dim() else torch.cat(list(tensors))
