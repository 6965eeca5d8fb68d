"""Runs layers on the shares of a batch, each rank in a thread of its own, and puts together what they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Tensor

from bpt.graph.share import Share
from bpt.nn.layers import Layer
from bpt.nn.pass_context import PassContext
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.one_layer import tops_of

T = TypeVar("T")
SEED = 7


def shares_of(counts: Sequence[int]) -> list[Share]:
    """The shares of ranks that have so many samples each."""
    return [Share(end - count, count, sum(counts)) for count, end in zip(counts, accumulate(counts), strict=True)]


def on_ranks(counts: Sequence[int], function: Callable[[PassContext], T], **settings: Any) -> list[T]:
    """What ``function`` returns for each rank's context; ``settings`` are further fields of it.

    A batch of any size is divided as ``counts``: in the tests there is one size only.
    """
    shares = shares_of(counts)

    def run(ranks: Communicator) -> T:
        def total(tensor: Tensor, layer: str) -> Tensor:
            assert not tensor.requires_grad
            ranks.Allreduce(tensor.contiguous().numpy())
            return tensor

        share = shares[ranks.rank]
        return function(PassContext(SEED, split=lambda samples: share, ranks=len(counts), total=total, **settings))

    return run_ranks(len(counts), run)


def rows_of(share: Share, rotation: float = 0.0) -> list[int]:
    """The rows of the whole batch that the share has, in its order."""
    return [(share.start + int(rotation * share.total) + row) % share.total for row in range(share.count)]


def whole_of(parts: Sequence[Tensor], counts: Sequence[int], rotation: float = 0.0) -> Tensor:
    """The whole batch's tensor, given each rank's rows of it."""
    rows = [row for share in shares_of(counts) for row in rows_of(share, rotation)]
    assert [len(part) for part in parts] == list(counts)
    return torch.cat(list(parts))[torch.tensor(rows, dtype=torch.long).argsort()]


def run_layer(
    layer: Layer, bottoms: Sequence[Tensor], diffs: int, rows: Sequence[int] | None = None
) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Run forward and backward: tops, diffs of the first ``diffs`` bottoms, gradients of the blobs, blobs afterwards.

    Backward starts from a diff that tells a top's elements apart, whichever ``rows`` of the whole batch it holds.
    """
    leaves = [bottom.clone().requires_grad_() for bottom in bottoms[:diffs]]
    learned = [blob for blob in layer.blobs if blob.requires_grad]
    tops = tops_of(layer, *leaves, *bottoms[diffs:])
    wanted = [top for top in tops if top.requires_grad]
    gradients: list[Tensor] = []
    if wanted:
        found = torch.autograd.grad(wanted, [*leaves, *learned], [_diff(top, rows) for top in wanted])
        gradients = [gradient.detach() for gradient in found]
    blobs = [blob.detach() for blob in layer.blobs]
    return [top.detach() for top in tops], gradients[: len(leaves)], gradients[len(leaves) :], blobs


def _diff(top: Tensor, rows: Sequence[int] | None) -> Tensor:
    if not top.dim():
        return torch.tensor(3.0, dtype=top.dtype)
    numbers = torch.arange(len(top)) if rows is None else torch.tensor(rows, dtype=torch.long)
    size = top[:1].numel() if len(top) else top.new_empty((1, *top.shape[1:])).numel()
    return torch.sin(numbers.unsqueeze(1) * size + torch.arange(size)).to(top.dtype).reshape(top.shape)
