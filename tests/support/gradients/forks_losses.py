"""Losses that Caffe's forks have brought."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as some

from tests.support.gradient_checker import spaced
from tests.support.gradients.cases import Case, body, cases, filled
from tests.support.gradients.losses import classified, loss_param
from tests.support.gradients.strategies import flags, labels, shapes


@cases("SmoothL1Loss")
def _smooth_l1_loss(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1, largest=20))
    text = body(kind, "smooth_l1_loss_param", sigma=draw(some.sampled_from([None, 3, 0.7])))
    weights = draw(some.integers(0, 2))  # which get no diff
    return Case(text, filled([shape] * (2 + weights)), constant=tuple(range(2, 2 + weights)))


@cases("SmoothL1LossOHEM")
def _smooth_l1_loss_ohem(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=2, most=4, largest=20))
    weighted, tops = draw(flags), draw(some.integers(0, 2))
    mode = draw(some.sampled_from(["FULL", "VALID", "BATCH_SIZE", "NONE", "PRE_FIXED pre_fixed_normalizer: 7"]))
    text = f"{body(kind)} loss_param {{ normalization: {mode} }}"
    return Case(text, filled([shape] * (3 if weighted else 2)), constant=(2,) if weighted else (), tops=tops)


@cases("SoftmaxWithLossOHEM")
def _softmax_loss_ohem(draw: some.DrawFn, kind: str) -> Case:
    shape, axis, wanted = draw(classified())
    text = body(kind, "softmax_param", axis=axis) + draw(loss_param())
    return Case(text, (*filled([shape]), wanted), constant=(1,), tops=draw(some.integers(0, 3)))


@cases("TripletLoss")
def _triplet_loss(draw: some.DrawFn, kind: str) -> Case:
    # No triplet just keeps the margin, where the loss has a kink.
    shape = draw(shapes(least=1, largest=15))
    text = body(kind, "triplet_loss_param", margin=draw(some.sampled_from([None, 0.9123, 20.0])))
    return Case(text, filled([shape] * 3))


@cases("CenterLoss")
def _center_loss(draw: some.DrawFn, kind: str) -> Case:
    # The centres go their own way: tests/nn/layers/test_losses.py has it.
    shape = draw(shapes(least=2, largest=20))
    classes = draw(some.integers(1, 3))
    text = body(kind, "center_loss_param", num_output=classes)
    wanted = draw(labels((shape[0],), classes))
    return Case(text, (spaced(shape), wanted), constant=(1,), own_rule=True)


@cases("FocalLoss")
def _focal_loss(draw: some.DrawFn, kind: str) -> Case:
    settings: dict[str, Any] = {
        "gamma": draw(some.sampled_from([None, 0.5, 1])),
        "alpha": draw(some.sampled_from([None, 0.7])),
    }
    if draw(flags):
        shape = draw(shapes(least=1, largest=20))
        wanted = draw(labels(shape, 2))
        return Case(body(kind, "focal_loss_param", **settings), (*filled([shape]), wanted), constant=(1,))
    shape, axis, wanted = draw(classified())
    if draw(flags):
        settings["type"] = "LINEAR"
    text = body(kind, "focal_loss_param", **settings) + f" softmax_param {{ axis: {axis or 0} }}" + draw(loss_param())
    return Case(text, (*filled([shape]), wanted), constant=(1,))


@cases("L1Loss")
def _l1_loss(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=2, largest=20))
    names = ("l2_per_location", "l2_prescale_by_channels", "normalize_by_num_entries")
    fields = {name: draw(some.sampled_from([None, "true"])) for name in names}
    ours, theirs = filled([shape] * 2)
    theirs = theirs + 2 / theirs.numel()  # half of what numbers lie apart: no difference is 0, where there is a kink
    return Case(body(kind, "l1_loss_param", **fields), (ours, theirs) if draw(flags) else (ours,))


@cases("MarginInnerProduct")
def _margin_inner_product(draw: some.DrawFn, kind: str) -> Case:
    # Its weights, brought to length 1, go their own way.
    shape = draw(shapes(least=2, largest=20))
    margin = draw(some.sampled_from(["SINGLE", "DOUBLE", "TRIPLE", "QUADRUPLE"]))
    text = body(kind, "margin_inner_product_param", num_output=3, type=margin, base=5, gamma=0.5, lambda_min=0.1)
    wanted = draw(labels((shape[0],), 3))
    return Case(text, (*filled([shape]), wanted), constant=(1,), tops=draw(some.integers(1, 2)), own_rule=True)


@cases("RegionLoss")
def _region_loss(draw: some.DrawFn, kind: str) -> Case:
    # With rescore the overlap of a box is what is wanted of its confidence, which no diff goes back from.
    images = draw(some.integers(1, 2))
    fields = {
        "num": 2,
        "num_class": 2,
        "biases": [0.7, 1.3, 1.9, 0.6],
        "rescore": 0,
        "bias_match": draw(some.integers(0, 1)),
        "class_scale": draw(some.sampled_from([None, 2.0])),
        "softmax": draw(some.sampled_from([None, 0])),
    }
    boxes = torch.tensor([[1, 0.3, 0.6, 0.4, 0.3], [0, 0.8, 0.2, 0.2, 0.5], [0, 0, 0, 0, 0]], dtype=torch.float64)
    text = body(kind, "region_loss_param", **fields)
    return Case(text, (*filled([(images, 14, 2, 1)]), boxes.flatten().repeat(images, 1)), constant=(1,))
