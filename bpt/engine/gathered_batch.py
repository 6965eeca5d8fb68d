"""Gathering: what a layer that needs the whole batch gets of micro-batches, and gives back to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bpt.engine.segment_state import MicroBatchState
from bpt.nn.pass_context import PassContext

Rows = Callable[[int, Tensor, PassContext], Tensor]
"""Those of a micro-batch, of an edge's blob for the whole share."""


def merge_micro_batches(
    states: Sequence[MicroBatchState], inputs: Iterable[int], outputs: Iterable[int]
) -> MicroBatchState:
    """Return the whole share of a pass, as far as a segment needs it: values of its inputs, and diffs of its outputs.

    Args:
        states: of all micro-batches of the pass, in order. Blobs without axes are with the first one.
    """
    values = _joined([state.values for state in states], inputs)
    diffs = _joined([state.diffs for state in states], outputs)
    return MicroBatchState(replace(states[0].context, micro_batch=None), values, diffs)


def scatter_micro_batches(
    blobs: Mapping[int, Tensor], states: Sequence[MicroBatchState], diff: bool, rows: Rows
) -> None:
    """Let each micro-batch have its rows of these values or diffs; a blob without axes is the first one's."""
    for edge, blob in blobs.items():
        for state in states if blob.dim() else states[:1]:
            store = state.diffs if diff else state.values
            store[edge] = rows(edge, blob, state.context)


def _joined(stores: Sequence[Mapping[int, Tensor]], edges: Iterable[int]) -> dict[int, Tensor]:
    found = {}
    for edge in edges:
        parts = [store[edge] for store in stores if edge in store]
        if parts:
            found[edge] = torch.cat(parts) if parts[0].dim() else parts[0]
    return found
