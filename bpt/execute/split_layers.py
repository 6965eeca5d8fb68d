"""Collectives at the borders of split layers: what both schemes share, and how blobs travel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.context import PassContext
from bpt.execute.segment_state import MicroBatchState
from bpt.graph.model_parallel import Block
from bpt.precision import array_of

Bounds = Sequence[tuple[int, int]]  # of each shard's slice of the features


@dataclass(frozen=True)
class BlockPass:
    """A pass of the split layers ``block`` on this rank's slice.

    Attributes:
        segment: its number.
        state: of the micro-batch.
        run: computes the top of the slice from its bottom, in a context.
        run_back: computes from the diff of that top what the bottom wants.
        starting_diff: the diff that comes to the block's top from behind.
    """

    block: Block
    segment: int
    state: MicroBatchState
    run: Callable[[Tensor, PassContext], Tensor]
    run_back: Callable[[Tensor | None], Mapping[int, Tensor]]
    starting_diff: Callable[[], Tensor | None]


class Collectives(Protocol):
    """Exchanges blobs before and after split layers (MPI-FC's ``MpiFcOperator``).

    All ranks that hold slices of a layer must execute the same instructions in the same order.
    """

    @property
    def scheme(self) -> int:
        """Of ``pb.FcParameter.Scheme``."""

    @property
    def leads(self) -> bool:
        """Whether this rank runs all layers, and not only its slices of those that are split."""

    def forward(self, call: BlockPass) -> None:
        """Run a block forward: from the bottom in ``call.state.values`` to the top there."""

    def backward(self, call: BlockPass) -> None:
        """Run a block backward: from the diff of its top to that of its bottom in ``call.state.diffs``."""


def message(blob: Tensor) -> NDArray[Any]:
    """The elements of ``blob`` in their logical order, whatever its layout, on the host; a copy only if need be."""
    return array_of(blob.detach().contiguous().cpu()).reshape(-1)


def room(elements: int, dtype: torch.dtype) -> Tensor:
    """Memory on the host to receive so many elements."""
    return torch.empty(elements, dtype=dtype)


def apart(blob: Tensor, bounds: Bounds) -> Tensor:
    """``blob`` (rows, features) as one flat tensor, slice by slice of its features."""
    rows = blob.shape[0]
    if (0, blob.shape[1]) in bounds:
        return blob.reshape(-1)
    flat = blob.new_empty(blob.numel())
    for start, stop in bounds:
        flat[rows * start : rows * stop].view(rows, stop - start).copy_(blob[:, start:stop])
    return flat


def together(flat: Tensor, rows: int, bounds: Bounds) -> Tensor:
    """The inverse of ``apart``."""
    slices = [flat[rows * start : rows * stop].view(rows, stop - start) for start, stop in bounds if stop > start]
    return slices[0] if len(slices) == 1 else torch.cat(slices, 1)


def sizes(rows: int, bounds: Bounds) -> list[int]:
    """Elements of each slice of a blob with so many rows."""
    return [rows * (stop - start) for start, stop in bounds]
