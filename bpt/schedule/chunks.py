"""Chunks: layers whose gradients are sent to the host together (CGDP, section 4).

Only layers with trained parameters count. As in the paper, layer l is the top one, where backward begins, and chunks
are listed in the order of backward: the first holds the top layers, the last ends with layer 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


def chunks(layers: int, size: int) -> tuple[int, ...]:
    """Lengths of the chunks from layer l down to layer 1 by the rule of CGDP, section 4.2; they sum up to ``layers``.

    If ``size`` divides ``layers``, there are ``layers / size - 1`` chunks of ``size`` and then ``size`` chunks of one
    layer; otherwise ``layers // size`` chunks of ``size``, and what is left as chunks of one layer. The last layers
    stand alone so that little is left to exchange when backward ends. By this rule size l gives single layers, just
    as size 1 does.

    Beyond the paper, a size larger than ``layers`` gives one chunk of all layers. (The rule would give single layers
    once more, and no size at all would give the whole net.) No layers give no chunks.
    """
    assert layers >= 0 and size >= 1, (layers, size)
    if size > layers > 0:
        return (layers,)
    whole, rest = divmod(layers, size)
    if rest == 0 and whole:
        whole, rest = whole - 1, size
    return (size,) * whole + (1,) * rest


def describe(lengths: Sequence[int]) -> str:
    """A cut in a few characters: ``14x10 12x1`` is 14 chunks of 10 layers, and then 12 of one."""
    return " ".join(f"{len(list(alike))}x{length}" for length, alike in groupby(lengths)) or "none"
