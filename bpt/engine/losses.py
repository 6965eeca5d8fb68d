"""Losses: their sum, and the diffs with which backward begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from bpt.graph.layer_graph import LayerGraph


def sum_of_losses(
    graph: LayerGraph, values: Mapping[int, Tensor], edges: Iterable[int], device: torch.device
) -> Tensor:
    """Return the sum of the losses among ``edges``, each times its ``loss_weight``: a float64 scalar on the device."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    for edge in edges:
        weight = graph.edges[edge].loss_weight
        if weight and edge in values:  # another output may hold anything, and 0 times infinity is not 0
            total = total + (values[edge].sum() * weight).double()
    return total


def starting_diff(
    graph: LayerGraph, edge: int, top: Tensor | None, behind: Tensor | None, scale: float = 1.0
) -> Tensor | None:
    """Return the diff that flows into ``edge`` from behind; ``None`` if nothing does.

    A loss starts with its weight. The diff that a later segment hands back is added to it. The diff that a caller has
    set for an output replaces it.

    Args:
        top: the edge's value, which a loss must have.
        behind: the diff that a later segment has handed back, or a caller has set.
        scale: losses, and the diffs that a caller has set, are multiplied by it.
    """
    info = graph.edges[edge]
    if behind is not None and info.consumer is None:
        return behind if scale == 1 else behind * scale
    if not info.loss_weight:
        return behind
    assert top is not None, edge
    weight = torch.full_like(top, info.loss_weight * scale)
    return weight if behind is None else behind + weight
