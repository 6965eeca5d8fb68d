"""Recomputation (GPipe, Huang et al. 2019, section 2.3): a segment runs forward again before it runs backward.

Between the two passes a stage keeps the inputs of a micro-batch and none of the blobs within. The second forward pass
is the first one again: random numbers follow from the pass context, layers continue from the hidden states that they
had, and running averages keep the values that they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from bpt.engine.compute import Update
from bpt.engine.segment_pass import SegmentPass
from bpt.engine.segment_state import MicroBatchState, SegmentState
from bpt.nn.net import Net

HiddenStates = Mapping[int, tuple[Tensor, ...]]


class RecomputedPass:
    """Runs a segment, and runs it forward again for its backward pass.

    Args:
        inner: runs the segment.
    """

    def __init__(self, net: Net, inner: SegmentPass) -> None:
        self.segment = inner.segment
        self.num_states = inner.num_states
        self._inner = inner
        nodes = net.graph.nodes[self.segment.start : self.segment.end]
        changing = [node for node in nodes if net.part.runs(node.index) and not net.layer(node).repeatable]
        self._changing = {node.index: net.layer(node) for node in changing}
        params = [net.graph.params[index] for node in changing for index in node.params]
        self._statistics = [net.value(net.graph.params[param.owner]) for param in params if not param.learnable]

    def forward(self, states: Sequence[MicroBatchState], grad: bool) -> None:
        hidden = self._hidden_states()
        self._inner.forward(states, grad)
        for state in states if grad else ():
            inputs = {edge: state.values[edge] for edge in self.segment.inputs if edge in state.values}
            state.segments[self.segment.index] = SegmentState(inputs, hidden_states=hidden)

    def backward(self, states: Sequence[MicroBatchState], update: Update | None) -> None:
        before = [set(state.values) for state in states]
        with self._as_before(states[0].segments[self.segment.index].hidden_states):
            for state in states:
                state.values.update(state.segments.pop(self.segment.index).leaves)
            self._inner.forward(states, True)
        self._inner.backward(states, update)
        for state, there in zip(states, before, strict=True):
            for edge in set(self.segment.outputs) - there:
                state.values.pop(edge, None)

    def _hidden_states(self) -> HiddenStates:
        return {index: layer.hidden_state for index, layer in self._changing.items()}

    @contextmanager
    def _as_before(self, hidden: HiddenStates) -> Iterator[None]:
        """Let layers continue from ``hidden`` in the scope; what they keep for later passes does not change."""
        now, statistics = self._hidden_states(), [blob.detach().clone() for blob in self._statistics]
        self._set_hidden_states(hidden)
        try:
            yield
        finally:
            self._set_hidden_states(now)
            with torch.no_grad():
                for blob, value in zip(self._statistics, statistics, strict=True):
                    blob.copy_(value)

    def _set_hidden_states(self, states: HiddenStates) -> None:
        for index, layer in self._changing.items():
            layer.hidden_state = states[index]
