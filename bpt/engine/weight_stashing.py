"""Weight stashing (PipeDream): a backward pass uses the weights of its forward pass.

Under ``schedule: DELAYED`` (Hybrid / GABRA, Eq. 1 and 2) a batch's backward pass comes some iterations after its
forward pass, and the stage has updated its weights meanwhile. In Eq. 1 all superscripts are those of the batch. So
each batch runs by copies of the weights, and the gradients of these copies are added to those of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from bpt.engine.compute import Update
from bpt.engine.segment_pass import SegmentPass
from bpt.engine.segment_state import MicroBatchState, Weights
from bpt.nn.layers.base import Layer
from bpt.nn.net import Net


class StashedPass:
    """Runs a segment, forward and backward, by the weights of the iteration in which its batch began.

    Args:
        inner: runs the segment.
    """

    def __init__(self, net: Net, inner: SegmentPass) -> None:
        self.segment = inner.segment
        self.num_states = inner.num_states
        self._net = net
        self._inner = inner

    def forward(self, states: Sequence[MicroBatchState], grad: bool) -> None:
        (state,) = states
        if grad and not state.weights:
            state.weights = _copy_weights(self._net)
        with _use_weights(self._net, state.weights):
            self._inner.forward(states, grad)

    def backward(self, states: Sequence[MicroBatchState], update: Update | None) -> None:
        (state,) = states
        with _use_weights(self._net, state.weights):
            self._inner.backward(states, update)
        _add_gradients(self._net, state.weights)


def _copy_weights(net: Net) -> Weights:
    """Return copies of the parameters of ``net`` that are trained, as they are now."""
    return {id(value): nn.Parameter(value.detach().clone()) for value in net.parameters() if value.requires_grad}


@contextmanager
def _use_weights(net: Net, weights: Weights) -> Iterator[None]:
    """Let the layers compute by ``weights`` in the scope; a parameter without a copy is used itself."""
    if not weights:
        yield
        return
    lists = [layer.blobs for layer in net.layers if isinstance(layer, Layer)]
    own = [(blobs, index, blobs[index]) for blobs in lists for index in range(len(blobs))]
    for blobs, index, value in own:
        blobs[index] = weights.get(id(value), value)
    try:
        yield
    finally:
        for blobs, index, value in own:
            blobs[index] = value


def _add_gradients(net: Net, weights: Weights) -> None:
    """Add the gradients of the copies to those of the parameters that were copied."""
    for value in net.parameters():
        copy = weights.get(id(value))
        if copy is not None and copy.grad is not None:
            value.grad = copy.grad if value.grad is None else value.grad + copy.grad
            copy.grad = None
