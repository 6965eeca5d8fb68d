"""MultiBoxLoss against SSD's rules, told box by box and without torch's help; the recordings have few settings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from bpt.base.errors import DataError
from bpt.config.proto import bpt_pb2 as pb
from tests.support.one_layer import error_of, one_layer

Box = list[float]
CLASSES, PRIORS, IMAGES = 3, 12, 2


def body(settings: str = "", more: str = "") -> str:
    return f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: {CLASSES} {settings} }} {more}'


def bottoms(shared: bool = True, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    corner = rand(PRIORS, 2) - 0.1
    priors = torch.cat((corner, corner + 0.2 + rand(PRIORS, 2) / 2), 1)
    boxes = priors[:4] + (rand(4, 4) - 0.5) / 5
    rows = torch.cat((torch.tensor([[0.0, 1, 0], [0, 2, 1], [1, 2, 0], [1, 1, 1]]), boxes, torch.zeros(4, 1)), 1)
    rows[3, 7] = 1
    offsets = (rand(IMAGES, PRIORS * 4 * (1 if shared else CLASSES)) - 0.5) * 2
    scores = (rand(IMAGES, PRIORS * CLASSES) - 0.5) * 4
    prior = torch.stack((priors, torch.full_like(priors, 0.1) + rand(PRIORS, 4) / 10)).view(1, 2, -1)
    return [offsets, scores, prior, rows[None, None]]


def overlap(one: Box, other: Box) -> float:
    width, height = (min(one[i + 2], other[i + 2]) - max(one[i], other[i]) for i in (0, 1))
    if width <= 0 or height <= 0:
        return 0.0
    size = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (size[0] + size[1] - width * height)


def matched(boxes: list[Box], objects: list[Box], p: Any) -> tuple[list[int], list[float]]:
    found, best = [-1] * len(boxes), [0.0] * len(boxes)
    pairs = {}
    for i, box in enumerate(boxes):
        if p.ignore_cross_boundary_bbox and (min(box) < 0 or max(box) > 1):
            found[i] = -2
            continue
        for j, object_ in enumerate(objects):
            if (common := overlap(box, object_)) > 1e-6:
                pairs[i, j] = common
                best[i] = max(best[i], common)
    left = set(range(len(objects)))
    while left:
        free = {pair: common for pair, common in pairs.items() if found[pair[0]] == -1 and pair[1] in left}
        if not free:
            break
        i, j = max(free, key=lambda pair: free[pair])
        found[i], best[i] = j, free[i, j]
        left.remove(j)
    if p.match_type == p.PER_PREDICTION:
        for i in range(len(boxes)):
            mine = {j: pairs[i, j] for j in range(len(objects)) if pairs.get((i, j), 0) >= p.overlap_threshold}
            if found[i] == -1 and mine:
                found[i] = max(mine, key=lambda j: mine[j])
    return found, best


def coded(box: Box, prior: Box, code: int) -> Box:
    size = [prior[2] - prior[0], prior[3] - prior[1]]
    if code == pb.PriorBoxParameter.CORNER:
        return [a - b for a, b in zip(box, prior, strict=True)]
    if code == pb.PriorBoxParameter.CORNER_SIZE:
        return [(box[k] - prior[k]) / size[k % 2] for k in range(4)]
    centres = [(box[k] + box[k + 2] - prior[k] - prior[k + 2]) / 2 / size[k] for k in (0, 1)]
    return [*centres, *(math.log((box[k + 2] - box[k]) / size[k]) for k in (0, 1))]


def placed(offset: Box, prior: Box, code: int) -> Box:
    size = [prior[2] - prior[0], prior[3] - prior[1]]
    if code == pb.PriorBoxParameter.CORNER:
        return [a + b for a, b in zip(offset, prior, strict=True)]
    if code == pb.PriorBoxParameter.CORNER_SIZE:
        return [prior[k] + offset[k] * size[k % 2] for k in range(4)]
    centre = [(prior[k] + prior[k + 2]) / 2 + offset[k] * size[k] for k in (0, 1)]
    half = [math.exp(offset[k + 2]) * size[k] / 2 for k in (0, 1)]
    return [centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]]


def loss_of(settings: str, given: list[torch.Tensor]) -> float:
    p: Any = one_layer(body(settings), *(tuple(bottom.shape) for bottom in given)).spec.param.multibox_loss_param
    own = 1 if p.share_location else CLASSES
    offsets = given[0].view(IMAGES, PRIORS, own, 4).transpose(1, 2).tolist()
    scores = given[1].view(IMAGES, PRIORS, CLASSES).tolist()
    priors, variances = given[2].view(2, PRIORS, 4).tolist()
    total, matches = 0.0, 0
    for image in range(IMAGES):
        rows = [row for row in given[3][0, 0].tolist() if row[0] == image and (p.use_difficult_gt or not row[7])]
        sum_, found = loss_of_image(p, offsets[image], scores[image], priors, variances, rows)
        total, matches = total + sum_, matches + found
    return total / max(1, matches)


def loss_of_image(
    p: Any, offsets: list[list[Box]], scores: list[Box], priors: list[Box], variances: list[Box], rows: list[Box]
) -> tuple[float, int]:
    units = [[1.0] * 4] * PRIORS if p.encode_variance_in_target else variances
    last = variances if p.encode_variance_in_target else [[1.0] * 4] * PRIORS
    boxes = [
        [placed([o * u for o, u in zip(own[i], units[i], strict=True)], priors[i], p.code_type) for i in range(PRIORS)]
        for own in offsets
    ]
    found, best = matches_of(p, boxes, priors, rows)

    def conf(i: int, label: int) -> float:
        x = scores[i]
        if p.conf_loss_type == p.SOFTMAX:
            return math.log(sum(map(math.exp, x))) - x[label]
        return sum(math.log(1 + math.exp(-v if k == label else v)) for k, v in enumerate(x))

    def loc(i: int, c: int, n: int) -> float:
        wanted = [w / u for w, u in zip(coded(rows[n][3:7], priors[i], p.code_type), units[i], strict=True)]
        reference = priors[i] if p.use_prior_for_matching else boxes[c][i]
        sum_ = 0.0
        for k in range(4):
            d = abs(offsets[c][i][k] - wanted[k]) / last[i][k]
            if not (p.bp_inside and not 0 <= reference[k] <= 1):
                sum_ += d * d / 2 if p.loc_loss_type == p.L2 or d < 1 else d - 0.5
        return sum_

    def label(n: int) -> int:
        return 1 if p.map_object_to_agnostic else int(rows[n][1])

    negatives: list[int] = []
    if p.mining_type != p.NONE:
        (numbers,) = found
        losses = [conf(i, label(n) if n >= 0 else 0) for i, n in enumerate(numbers)]
        if p.mining_type == p.MAX_NEGATIVE:
            able = [i for i, n in enumerate(numbers) if n == -1 and best[i] < p.neg_overlap]
            count = int(sum(n >= 0 for n in numbers) * p.neg_pos_ratio)
        else:
            able, count = list(range(PRIORS)), p.sample_size
            losses = [each + (loc(i, 0, numbers[i]) if numbers[i] >= 0 else 0) for i, each in enumerate(losses)]
        able.sort(key=lambda i: -losses[i])
        if p.HasField("nms_param"):
            able = apart(able, priors if p.use_prior_for_nms else boxes[0], p.nms_param.nms_threshold)
        chosen = able[:count]
        negatives = [i for i in chosen if numbers[i] == -1]
        if p.mining_type == p.HARD_EXAMPLE:
            found = [[n if n < 0 or i in chosen else -1 for i, n in enumerate(numbers)]]
    labels = {i: label(n) for numbers in found for i, n in enumerate(numbers) if n >= 0}
    if p.mining_type == p.NONE:
        negatives = [i for i in range(PRIORS) if i not in labels]
    sum_ = p.loc_weight * sum(loc(i, c, n) for c, ns in enumerate(found) for i, n in enumerate(ns) if n >= 0)
    sum_ += sum(conf(i, n) for i, n in labels.items()) + sum(conf(i, 0) for i in negatives)
    return sum_, sum(n >= 0 for numbers in found for n in numbers)


def matches_of(p: Any, boxes: list[list[Box]], priors: list[Box], rows: list[Box]) -> tuple[list[list[int]], Box]:
    found, best = [], [0.0]
    for c, own in enumerate(boxes):
        if p.use_prior_for_matching:
            numbers, best = matched(priors, [row[3:7] for row in rows], p)
            found.append([n if n < 0 or p.share_location or rows[n][1] == c else -1 for n in numbers])
        else:
            mine = [n for n, row in enumerate(rows) if p.share_location or row[1] == c]
            numbers, best = matched(own, [rows[n][3:7] for n in mine], p)
            found.append([mine[n] if n >= 0 else n for n in numbers])
    return found, best


def apart(able: list[int], boxes: list[Box], threshold: float) -> list[int]:
    kept: list[int] = []
    for i in able:
        if all(overlap(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize(
    "settings",
    [
        "code_type: CENTER_SIZE",
        "code_type: CORNER_SIZE encode_variance_in_target: true loc_weight: 2 neg_pos_ratio: 1.5 neg_overlap: 0.3",
        "match_type: BIPARTITE use_difficult_gt: false ignore_cross_boundary_bbox: true overlap_threshold: 0.3",
        "use_prior_for_matching: false code_type: CENTER_SIZE bp_inside: true overlap_threshold: 0.3",
        "bp_inside: true loc_loss_type: L2 map_object_to_agnostic: true conf_loss_type: LOGISTIC",
        "mining_type: HARD_EXAMPLE sample_size: 5 overlap_threshold: 0.3",
        "mining_type: HARD_EXAMPLE sample_size: 4 nms_param { nms_threshold: 0.3 } overlap_threshold: 0.3",
        "nms_param { nms_threshold: 0.2 } use_prior_for_nms: true neg_pos_ratio: 1",
        "share_location: false mining_type: NONE overlap_threshold: 0.3",
        "share_location: false mining_type: NONE use_prior_for_matching: false encode_variance_in_target: true",
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_against_the_rules_told_box_by_box(settings: str, seed: int) -> None:
    given = bottoms("share_location: false" not in settings, seed)
    loss = one_layer(body(settings), *(tuple(bottom.shape) for bottom in given)).double()(*given)
    assert float(loss) == pytest.approx(loss_of(settings, given), rel=1e-9)


def test_old_field() -> None:
    given = bottoms()
    shapes = [tuple(bottom.shape) for bottom in given]
    for old, new in (("false", "NONE"), ("true", "MAX_NEGATIVE")):
        one, other = (one_layer(body(s), *shapes).double() for s in (f"do_neg_mining: {old}", f"mining_type: {new}"))
        assert torch.equal(one(*given), other(*given))
    refused = "do_neg_mining contradicts mining_type; leave out the former, which is old"
    assert error_of(body("do_neg_mining: true mining_type: NONE"), *shapes).endswith(refused)


def test_only_what_is_propagated_counts() -> None:
    given = bottoms()
    shapes = [tuple(bottom.shape) for bottom in given]
    whole, loc, conf = (
        float(one_layer(body(more=more), *shapes).double()(*given))
        for more in ("", *("".join(f"propagate_down: {w} " for w in which.split()) for which in ("1 0 0 0", "0 1 0 0")))
    )
    assert loc + conf == pytest.approx(whole)
    assert min(loc, conf) > 0.01


def test_no_objects_no_loss() -> None:
    offsets, scores, prior, rows = bottoms()
    given = (offsets, scores, prior, torch.full_like(rows[:, :, :1], -1))
    assert float(one_layer(body(), *(tuple(bottom.shape) for bottom in given)).double()(*given)) == 0


@pytest.mark.parametrize(("label", "reason"), [(0, "the background's"), (3, "outside [0, 3)"), (-2, "outside [0, 3)")])
def test_labels_that_are_none(label: int, reason: str) -> None:
    given = bottoms()
    given[3][0, 0, 2, 1] = label
    with pytest.raises(DataError) as caught:
        one_layer(body(), *(tuple(bottom.shape) for bottom in given)).double()(*given)
    assert str(caught.value) == (
        f'layer "L": an object of image 1 of the batch has the label {label} in "x3", which is {reason}; correct the '
        "data set, or num_classes and background_label_id"
    )


@pytest.mark.parametrize(
    ("settings", "shapes", "message"),
    [
        ("", [(2, 48), (2, 36), (1, 2, 44), (1, 1, 1, 8)],
         '11 prior boxes need 11 · 4 numbers for the places of objects, "x0" (2, 48) has 48 a sample'),
        ("", [(2, 44), (2, 36), (1, 2, 44), (1, 1, 1, 8)],
         '11 prior boxes need 11 · 3 scores, "x1" (2, 36) has 36 a sample'),
        ("", [(2, 44), (1, 33), (1, 2, 44), (1, 1, 1, 8)],
         'needs equally many samples (axis 0) of both: "x0" (2, 44) and "x1" (1, 33)'),
        ("", [(2, 44), (2, 33), (1, 44), (1, 1, 1, 8)], "needs prior boxes (1, 2, boxes · 4)"),
        ("", [(2, 44), (2, 33), (1, 2, 44), (2,)], "needs objects (1, 1, objects, 8)"),
        ("share_location: false", [(2, 132), (2, 33), (1, 2, 44), (1, 1, 1, 8)],
         "mining_type: NONE is the only one without share_location, as in SSD's Caffe"),
        ("mining_type: HARD_EXAMPLE sample_size: 0", [(2, 44), (2, 33), (1, 2, 44), (1, 1, 1, 8)],
         "sample_size must be at least 1"),
        ("overlap_threshold: 0", [(2, 44), (2, 33), (1, 2, 44), (1, 1, 1, 8)], "overlap_threshold must be above 0"),
    ],
)  # fmt: skip
def test_refusals(settings: str, shapes: list[tuple[int, ...]], message: str) -> None:
    assert message in error_of(body(settings), *shapes)
