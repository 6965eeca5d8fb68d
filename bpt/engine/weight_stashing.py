"""Weights of earlier iterations: what a stage computes by that has updated its own before a batch comes back.

Under ``schedule: DELAYED`` (Hybrid / GABRA, Eq. 1 and 2) a batch's backward pass comes some iterations after its
forward pass, and differentiates what that has computed, by the weights of that time (Eq. 1: all superscripts are those
of the batch). So each batch runs by copies, whose gradients go to the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from bpt.engine.segment_state import Weights
from bpt.nn.layers.base import Layer
from bpt.nn.net import Net


def copied_weights(net: Net) -> Weights:
    """Return copies of what is trained of ``net``, as it is now."""
    return {id(value): nn.Parameter(value.detach().clone()) for value in net.parameters() if value.requires_grad}


@contextmanager
def use_stashed_weights(net: Net, weights: Weights) -> Iterator[None]:
    """Let the layers compute by ``weights`` inside; by their own where there are none."""
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


def add_gradients(net: Net, weights: Weights) -> None:
    """Add the gradients of the copies to those of the parameters that were copied."""
    for value in net.parameters() if weights else ():
        copy = weights.get(id(value))
        if copy is not None and copy.grad is not None:
            value.grad = copy.grad if value.grad is None else value.grad + copy.grad
            copy.grad = None
