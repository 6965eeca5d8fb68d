"""Draws parts of an image by the objects in them (SSD, section 2.2, "data augmentation")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import BOX, Objects
from bpt.data.detection.boxes import coverage, jaccard
from bpt.data.object_boxes import Box
from bpt.data.sample_draws import SampleDraws


def check_sampler(sampler: pb.BatchSampler) -> None:
    """Raise a UserError that names the field if a range of the sampler is empty."""
    own = sampler.sampler
    if not 0 < own.min_scale <= own.max_scale <= 1:
        raise UserError(f"sampler: 0 < min_scale {own.min_scale:g} ≤ max_scale {own.max_scale:g} ≤ 1 does not hold")
    if not 0 < own.min_aspect_ratio <= own.max_aspect_ratio:
        raise UserError(
            f"sampler: 0 < min_aspect_ratio {own.min_aspect_ratio:g} ≤ max_aspect_ratio {own.max_aspect_ratio:g} does "
            "not hold"
        )


def sampled_part(samplers: Sequence[pb.BatchSampler], objects: Objects, draws: SampleDraws) -> Box | None:
    """Return one of all parts that ``samplers`` draw, all with the same probability; ``None`` if there is none."""
    found = np.concatenate([_parts(sampler, objects, draws) for sampler in samplers if sampler.use_original_image])
    return found[draws.below(len(found))] if len(found) else None


def _parts(sampler: pb.BatchSampler, objects: Objects, draws: SampleDraws) -> NDArray[np.float32]:
    """Draw ``max_trials`` parts, and return at most ``max_sample`` that satisfy the constraint: (number, 4)."""
    parts = _drawn(sampler.sampler, sampler.max_trials, draws)
    fitting = parts[_fit(parts, objects, sampler.sample_constraint)]
    return fitting[: sampler.max_sample] if sampler.HasField("max_sample") else fitting


def _drawn(sampler: pb.Sampler, count: int, draws: SampleDraws) -> NDArray[np.float32]:
    """Draw ``count`` parts of the unit square: first the scale, then a ratio for which they fit, then the place."""
    scale, ratio, x, y = draws.uniforms(4 * count).reshape(4, count)
    scale = sampler.min_scale + (sampler.max_scale - sampler.min_scale) * scale
    least = np.maximum(sampler.min_aspect_ratio, scale**2)
    most = np.minimum(sampler.max_aspect_ratio, scale**-2)
    root = np.sqrt(least + (most - least) * ratio)
    sides = np.stack((scale * root, scale / root), 1).clip(max=1)
    corners = np.stack((x, y), 1) * (1 - sides)
    return np.concatenate((corners, corners + sides), 1).astype(np.float32)


def _fit(parts: NDArray[np.float32], objects: Objects, limits: pb.SampleConstraint) -> NDArray[np.bool_]:
    """Return which parts have an object within all ``limits``; all parts if there are no limits."""
    if not limits.ListFields():
        return np.ones(len(parts), np.bool_)
    ones, others = torch.from_numpy(parts), torch.from_numpy(np.ascontiguousarray(objects[:, BOX]))
    fits = torch.ones(len(ones), len(others), dtype=torch.bool)
    for name, measure in (
        ("jaccard_overlap", jaccard),
        ("sample_coverage", coverage),
        ("object_coverage", lambda part, box: coverage(box, part).T),
    ):
        least, most = f"min_{name}", f"max_{name}"
        if limits.HasField(least) or limits.HasField(most):
            values = measure(ones, others)
            if limits.HasField(least):
                fits &= values >= getattr(limits, least)
            if limits.HasField(most):
                fits &= values <= getattr(limits, most)
    found: NDArray[np.bool_] = fits.any(1).numpy()
    return found
