"""Matching of prior boxes, or predicted boxes, to objects (SSD, section 2.2, "matching strategy")."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bpt.data.detection.boxes import jaccard

NOTHING, LEFT_OUT = -1, -2
"""Values instead of an object's number: the box has no object; the box is excluded, as it reaches beyond the image."""
_SOME = 1e-6  # least overlap that counts


class Matches(NamedTuple):
    """The match of each of P boxes: the number of its object, NOTHING or LEFT_OUT, and its largest overlap."""

    objects: Tensor
    overlaps: Tensor


def match(boxes: Tensor, objects: Tensor, threshold: float | None, inside_only: bool = False) -> Matches:
    """Match ``boxes`` (P, 4) with ``objects`` (G, 4) of one image.

    First, each object gets a box, in the order of the largest overlaps. Then each remaining box gets the object with
    which it overlaps most, if the overlap is at least ``threshold`` (Jaccard).

    Args:
        threshold: the least overlap for remaining boxes; ``None``: they get no object (SSD: BIPARTITE).
        inside_only: whether to exclude boxes that reach beyond the image.
    """
    matched = torch.full((len(boxes),), NOTHING, device=boxes.device)
    overlap = jaccard(boxes, objects)
    overlap = torch.where(overlap > _SOME, overlap, 0.0)
    if inside_only:
        beyond = ((boxes < 0) | (boxes > 1)).any(1)
        matched[beyond] = LEFT_OUT
        overlap[beyond] = 0
    if not len(objects):
        return Matches(matched, overlap.new_zeros(len(boxes)))
    nearest, best = overlap.max(1)
    free = overlap.clone()
    for _ in range(len(objects)):
        box, object_ = divmod(int(free.argmax()), len(objects))
        if not free[box, object_] > 0:
            break
        matched[box] = object_
        nearest[box] = free[box, object_]
        free[box] = 0
        free[:, object_] = 0
    if threshold is not None:
        also = (matched == NOTHING) & (nearest >= max(threshold, _SOME))
        matched[also] = best[also]
    return Matches(matched, nearest)


def hardest(losses: Tensor, eligible: Tensor, counts: Tensor) -> Tensor:
    """Return a mask (N, P) of the eligible boxes of each image that have the largest losses.

    Args:
        losses: (N, P) the loss of each box; of equal losses the first ones are chosen.
        eligible: (N, P) whether each box can be chosen.
        counts: (N,) the number of boxes to choose in each image.
    """
    order = torch.where(eligible, losses, -torch.inf).argsort(dim=1, descending=True, stable=True)
    place = torch.empty_like(order)
    place.scatter_(1, order, torch.arange(losses.shape[1], device=losses.device).expand_as(order))
    return eligible & (place < counts[:, None])
