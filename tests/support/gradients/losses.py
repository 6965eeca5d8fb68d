"""Losses: scores, and what they should have been."""

from __future__ import annotations

import torch
from hypothesis import strategies as some
from torch import Tensor

from tests.support.gradient_checker import spaced
from tests.support.gradients.cases import Case, body, cases, filled, positive
from tests.support.gradients.strategies import flags, labels, shapes
from tests.support.one_layer import Shape


@some.composite
def loss_param(draw: some.DrawFn) -> str:
    """``loss_param``: what is ignored, and what the sum is divided by, also in the old form."""
    fields = []
    if draw(flags):
        fields.append(f"ignore_label: {draw(some.integers(0, 2))}")
    way = draw(some.sampled_from(["", "normalization", "normalize"]))
    if way == "normalization":
        fields.append(f"normalization: {draw(some.sampled_from(['FULL', 'VALID', 'BATCH_SIZE', 'NONE']))}")
    elif way:
        fields.append(f"normalize: {draw(some.sampled_from(['true', 'false']))}")
    return f" loss_param {{ {' '.join(fields)} }}" if fields else ""


@some.composite
def classified(draw: some.DrawFn) -> tuple[Shape, int, Tensor]:
    """Scores' shape, the axis of the classes, and labels."""
    if draw(some.integers(0, 9)) == 0:  # the classes along axis 0, and so many labels that Caffe takes them for samples
        classes, each = draw(some.tuples(*[some.integers(1, 4)] * 2))
        return (classes, classes * each), 0, draw(labels((classes, each), classes))
    shape = draw(shapes(least=2, most=5))
    axis = draw(some.integers(1, len(shape) - 1))
    samples = shape[:axis] + shape[axis + 1 :]
    with_axis = (*shape[:axis], 1, *shape[axis + 1 :]) if draw(flags) else samples
    return shape, axis - len(shape) * draw(flags), draw(labels(with_axis, shape[axis]))


@cases("SoftmaxWithLoss")
def _softmax_loss(draw: some.DrawFn, kind: str) -> Case:
    # -log p of these scores is far from 87, above which it is clipped without its gradient's notice. The second top,
    # the probabilities, gets no diff.
    shape, axis, wanted = draw(classified())
    text = body(kind, "softmax_param", axis=axis) + draw(loss_param())
    return Case(text, (*filled([shape]), wanted), constant=(1,), tops=draw(some.integers(0, 2)))


@cases("InfogainLoss")
def _infogain_loss(draw: some.DrawFn, kind: str) -> Case:
    # The matrix, a bottom, gets no diff. No probability of these scores is below 1e-20, where the log is clipped
    # without its gradient's notice.
    shape, axis, wanted = draw(classified())
    classes = shape[axis]
    matrix = spaced(draw(some.sampled_from([(classes, classes), (1, 1, classes, classes)])), 3)
    text = body(kind, "infogain_loss_param", axis=axis) + f" softmax_param {{ axis: {axis} }}" + draw(loss_param())
    return Case(text, (*filled([shape]), wanted, matrix), constant=(1, 2), tops=draw(some.integers(0, 2)))


@cases("SigmoidCrossEntropyLoss")
def _logistic_loss(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1))
    other = draw(some.sampled_from([shape, (*shape, 1), (shape[0], 1, *shape[1:])]))
    targets = draw(labels(other, 2)) if draw(flags) else (spaced(other, 1) + 2) / 4
    return Case(body(kind) + draw(loss_param()), (*filled([shape]), targets), constant=(1,))


@cases("EuclideanLoss")
def _euclidean_loss(draw: some.DrawFn, kind: str) -> Case:
    shape = draw(shapes(least=1, largest=30))
    other = draw(some.sampled_from([shape, (*shape, 1), (shape[0], 1, *shape[1:])]))
    return Case(body(kind), filled([shape, other]))


@cases("HingeLoss")
def _hinge_loss(draw: some.DrawFn, kind: str) -> Case:
    # No score is 1 or -1, where the margin is just kept and the norm L1 has a kink.
    shape = draw(shapes(least=1))
    wanted = draw(labels(draw(some.sampled_from([shape[:1], (shape[0], 1, 1)])), max(1, _classes(shape))))
    text = body(kind, "hinge_loss_param", norm=draw(some.sampled_from([None, "L1", "L2"])))
    return Case(text, (*filled([shape]), wanted), constant=(1,))


@cases("MultinomialLogisticLoss")
def _multinomial_logistic_loss(draw: some.DrawFn, kind: str) -> Case:
    # All probabilities are above 1e-20, below which the log is clipped: test_rules.py has those.
    shape = draw(shapes(least=1))
    wanted = draw(labels(draw(some.sampled_from([shape[:1], (shape[0], 1, 1)])), max(1, _classes(shape))))
    return Case(body(kind), (positive(shape) / 5, wanted), constant=(1,))


@cases("ContrastiveLoss")
def _contrastive_loss(draw: some.DrawFn, kind: str) -> Case:
    # Caffe divides by the distance + 1e-4: calculus only of pairs that are alike or far apart, and of the legacy
    # version. test_rules.py has the others.
    shape = draw(shapes(largest=20))
    legacy = draw(flags)
    margin = draw(some.sampled_from([None, 0.9123, 20.0])) if legacy else -1.0
    text = body(kind, "contrastive_loss_param", legacy_version=legacy, margin=margin)
    alike = draw(labels(draw(some.sampled_from([shape[:1], (shape[0], 1)])), 2))
    # As many features, perhaps in other axes.
    other = draw(some.sampled_from([shape, (*shape, 1)]))
    return Case(text, (*filled([shape, other]), alike), constant=(2,))


@cases("MultiBoxLoss")
def _multibox_loss(draw: some.DrawFn, kind: str) -> Case:
    # Which boxes count does not change within a step: no two losses are equal, and prior boxes are matched, which get
    # no diff, as do objects.
    priors, classes, images = draw(some.integers(2, 4)), draw(some.integers(2, 3)), draw(some.integers(1, 2))
    mining = draw(some.sampled_from(["NONE", "MAX_NEGATIVE", "HARD_EXAMPLE"]))
    shared = mining != "NONE" or draw(flags)
    side = torch.arange(priors, dtype=torch.float64)[:, None]
    boxes = torch.cat((side / 5, side / 6, side / 5 + 0.4, side / 6 + 0.35), 1)
    variances = torch.full_like(boxes, 0.5)
    objects = [
        [image, draw(some.integers(1, classes - 1)), 0, *(boxes[image] + 0.03).tolist(), 0] for image in range(images)
    ]
    text = body(
        kind,
        "multibox_loss_param",
        num_classes=classes,
        share_location=shared,
        mining_type=mining,
        code_type=draw(some.sampled_from(["CORNER", "CENTER_SIZE", "CORNER_SIZE"])),
        loc_loss_type=draw(some.sampled_from(["L2", "SMOOTH_L1"])),
        conf_loss_type=draw(some.sampled_from(["SOFTMAX", "LOGISTIC"])),
        encode_variance_in_target=draw(flags),
        bp_inside=draw(flags),
        sample_size=draw(some.integers(1, 4)),
        loc_weight=draw(some.sampled_from([1, 2])),
    )
    predicted = filled([(images, priors * 4 * (1 if shared else classes)), (images, priors * classes)])
    prior = torch.stack((boxes, variances)).reshape(1, 2, -1)
    rows = torch.tensor(objects, dtype=torch.float64)[None, None]
    normalizer = draw(
        some.sampled_from(["", " loss_param { normalization: BATCH_SIZE }", " loss_param { normalization: FULL }"])
    )
    return Case(text + normalizer, (*predicted, prior, rows), constant=(2, 3), common=(2,), listed=(3,))


def _classes(shape: Shape) -> int:
    number = 1
    for size in shape[1:]:
        number *= size
    return number
