"""GatheredPass: layers that need the whole batch run once for all micro-batches of a pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bpt.engine.compute import Update
from bpt.engine.segment_pass import SegmentPass
from bpt.engine.segment_state import MicroBatchState
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.pass_context import PassContext


class GatheredPass:
    """Runs a segment once for all micro-batches of a pass, which it merges before and divides again afterwards.

    Blobs without axes are with the first micro-batch.

    Args:
        inner: runs the segment on the whole share.
        num_states: micro-batches of a pass.
    """

    def __init__(self, graph: LayerGraph, inner: SegmentPass, num_states: int) -> None:
        self.segment = inner.segment
        self.num_states = num_states
        self._graph = graph
        self._inner = inner

    def forward(self, states: Sequence[MicroBatchState], grad: bool) -> None:
        whole = MicroBatchState(replace(states[0].context, micro_batch=None))
        whole.values.update(_merge([state.values for state in states], self.segment.inputs))
        self._inner.forward([whole], grad)
        states[0].segments.update(whole.segments)
        for edge in self.segment.outputs:
            for state, rows in self._divide(edge, whole.values[edge], states):
                state.values[edge] = rows

    def backward(self, states: Sequence[MicroBatchState], update: Update | None) -> None:
        whole = MicroBatchState(replace(states[0].context, micro_batch=None))
        whole.diffs.update(_merge([state.diffs for state in states], self.segment.outputs))
        whole.segments[self.segment.index] = states[0].segments.pop(self.segment.index)
        self._inner.backward([whole], update)
        for edge in self.segment.inputs:
            if edge in whole.diffs:
                for state, rows in self._divide(edge, whole.diffs[edge], states):
                    state.diffs[edge] = rows

    def _divide(
        self, edge: int, blob: Tensor, states: Sequence[MicroBatchState]
    ) -> Iterable[tuple[MicroBatchState, Tensor]]:
        """Return micro-batches with their rows of a blob."""
        for state in states if blob.dim() else states[:1]:
            yield state, rows_of(self._graph, edge, blob, state.context)


def rows_of(graph: LayerGraph, edge: int, blob: Tensor, context: PassContext) -> Tensor:
    """Return the rows of a micro-batch, of a blob of this rank's whole share."""
    if not blob.dim():
        return blob
    own = context.split(graph.edges[edge].shape[0])
    part = context.part_of(own)
    return blob.narrow(0, part.start - own.start, part.count)


def _merge(stores: Sequence[Mapping[int, Tensor]], edges: Iterable[int]) -> dict[int, Tensor]:
    """Return the blobs of a whole share; an edge that no micro-batch has is left out."""
    found = {}
    for edge in edges:
        parts = [store[edge] for store in stores if edge in store]
        if parts:
            found[edge] = torch.cat(parts) if parts[0].dim() else parts[0]
    return found
