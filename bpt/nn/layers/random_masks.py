"""Random numbers of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.graph.layer_spec import count
from bpt.graph.share import Share
from bpt.nn.layers.graph_tracing import not_compiled
from bpt.nn.pass_context import PassContext

BLOCKS = 16  # the largest number of generators for a batch
SMALL = 2**16  # up to this number of numbers one generator suffices


def draw_uniform(context: PassContext, share: Share, shape: Sequence[int], device: torch.device, *key: str) -> Tensor:
    """Return float32 numbers in [0, 1) that belong to this forward pass and to ``key``.

    Each number belongs to a row of the whole batch (and to a column, under ``context.columns``). It is the same however
    the batch is divided. The rows are drawn in blocks, each from its own generator, so a rank draws few numbers that it
    does not need. The result is contiguous: the number of an element does not depend on the memory format of a bottom.

    Args:
        context: the current pass.
        share: the samples of this rank.
        shape: the shape of the result; axis 0 has a row for each of these samples.
        device: the device of the result.
        key: the purpose and the name of the layer.
    """
    return _draw(context, share, tuple(shape), device, key)


@not_compiled  # torch cannot trace the creation of a generator
def _draw(
    context: PassContext, share: Share, shape: tuple[int, ...], device: torch.device, key: tuple[str, ...]
) -> Tensor:
    columns = context.columns
    row = shape[1:] if columns is None else (columns.total, *shape[2:])
    size = max(-(-share.total // BLOCKS), -(-SMALL // max(1, count(row))))  # rows of a block
    numbers = torch.empty(shape, dtype=torch.float32, device=device)
    done = 0
    for begin, end in share.runs(share.shift(context.rotation)):
        for block in range(begin // size, -(-end // size)):
            start, stop = block * size, min(share.total, (block + 1) * size)
            first, last = max(begin, start), min(end, stop)
            target = numbers[done : done + last - first]
            done += last - first
            generator = context.pass_generator(*key, block, device=device)
            if columns is None and last - first == stop - start:
                target.uniform_(generator=generator)
                continue
            drawn = torch.rand((stop - start, *row), generator=generator, dtype=torch.float32, device=device)
            drawn = drawn[first - start : last - start]
            target.copy_(drawn if columns is None else drawn.narrow(1, columns.start, columns.count))
    return numbers
