"""Transforms objects' boxes when an image is cropped, mirrored or resized (SSD's Caffe)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import BOX, Objects
from bpt.data.detection.boxes import coverage

Box = NDArray[np.float32]
"""(xmin, ymin, xmax, ymax) as fractions of an image; a box may reach beyond it."""
WHOLE: Box = np.array((0, 0, 1, 1), np.float32)


def cut(objects: Objects, part: Box, emit: pb.EmitConstraint | None) -> Objects:
    """Return the ``objects`` (G, 7) that are visible in a ``part`` of the image, with boxes as fractions of the part.

    Args:
        emit: the constraint for objects that stay; ``None``: all visible ones stay.
    """
    boxes = objects[:, BOX]
    seen = np.all((boxes[:, :2] < part[2:]) & (boxes[:, 2:] > part[:2]), axis=1)
    if emit is not None:
        seen &= _emitted(boxes, part, emit)
    kept = objects[seen].copy()
    kept[:, BOX] = within(kept[:, BOX], part).clip(0, 1)
    boxes = kept[:, BOX]
    found: Objects = kept[np.all(boxes[:, 2:] > boxes[:, :2], axis=1)]
    return found


def _emitted(boxes: NDArray[np.float32], part: Box, emit: pb.EmitConstraint) -> NDArray[np.bool_]:
    if emit.emit_type == pb.EmitConstraint.CENTER:
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside: NDArray[np.bool_] = np.all((centres >= part[:2]) & (centres <= part[2:]), axis=1)
        return inside
    parts = coverage(torch.from_numpy(boxes), torch.from_numpy(part[None]))[:, 0]
    enough: NDArray[np.bool_] = (parts > emit.emit_overlap).numpy()
    return enough


def within(boxes: NDArray[np.float32], part: Box) -> NDArray[np.float32]:
    """Convert ``boxes`` (…, 4) from fractions of an image to fractions of a ``part`` of it."""
    corner, size = np.tile(part[:2], 2), np.tile(part[2:] - part[:2], 2)
    return ((boxes - corner) / size).astype(np.float32, copy=False)


def around(boxes: NDArray[np.float32], part: Box) -> NDArray[np.float32]:
    """Convert ``boxes`` (…, 4) from fractions of a ``part`` to fractions of the image, the inverse of ``within``."""
    corner, size = np.tile(part[:2], 2), np.tile(part[2:] - part[:2], 2)
    return (boxes * size + corner).astype(np.float32, copy=False)


def mirrored(objects: Objects) -> Objects:
    """Return ``objects`` with boxes mirrored left to right."""
    turned: Objects = objects.copy()
    turned[:, 2], turned[:, 4] = 1 - objects[:, 4], 1 - objects[:, 2]
    return turned
