"""Proposal: its two families of names, rows of several images, and what its text can get wrong.

What a fork's Proposal makes: test_golden.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bpt.base.errors import LayerError
from tests.support.golden_cases import graph_of
from tests.support.one_layer import one_layer, tops_of

FIRST = "anchor_scale: 3 anchor_ratio: 3 max_rois: 12 rpn_nms_thresh: 0.6 rpn_min_size: 8"
SECOND = (
    "scale: 8 scale: 16 scale: 32 ratio: 0.5 ratio: 1 ratio: 2 post_nms_topn: 12 nms_thresh: 0.6 min_size: 8 "
    "base_size: 16"
)


def bottoms(images: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(images)
    scores = torch.rand(images, 18, 4, 5, generator=generator)
    moves = torch.rand(images, 36, 4, 5, generator=generator) - 0.5
    return [scores, moves, torch.tensor([[64.0, 80, 1]]).repeat(images, 1)]


def tops(fields: str, given: list[torch.Tensor]) -> list[torch.Tensor]:
    body = f'type: "Proposal" proposal_param {{ feat_stride: 16 pre_nms_topn: 500 {fields} }}'
    return list(tops_of(one_layer(body, *(tuple(b.shape) for b in given), tops=2), *given))


def test_both_families_say_the_same() -> None:
    given = bottoms(1)
    for one, other in zip(tops(FIRST, given), tops(SECOND, given), strict=True):
        assert torch.equal(one, other)


def test_rows_of_images_follow_each_other() -> None:
    given = bottoms(3)
    rows, scores = tops(SECOND, given)
    start = 0
    for image in range(3):
        own, own_scores = tops(SECOND, [bottom[image : image + 1] for bottom in given])
        part = slice(start, start + len(own))
        assert torch.equal(rows[part, 1:], own[:, 1:]) and rows[part, 0].eq(image).all()
        assert torch.equal(scores[part], own_scores)
        start += len(own)
    assert start == len(rows)


def test_kept_boxes_are_large_within_the_image_and_apart() -> None:
    rows, scores = tops(SECOND, bottoms(1))
    boxes = rows[:, 1:]
    assert boxes.min() >= 0 and (boxes <= torch.tensor([79.0, 63, 79, 63])).all()
    extent = boxes[:, 2:] - boxes[:, :2] + 1
    assert extent.min() >= 8
    assert torch.equal(scores, scores.sort(0, descending=True).values)
    areas = extent.prod(1)
    upper, lower = boxes[:, None, :2].maximum(boxes[:, :2]), boxes[:, None, 2:].minimum(boxes[:, 2:])
    common = (lower - upper + 1).clamp(min=0).prod(2)
    overlap = common / (areas + areas[:, None] - common)
    assert overlap.fill_diagonal_(0).max() <= 0.6


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("max_rois: 3 nms_thresh: 0.5", "max_rois and nms_thresh are of different Caffes"),
        ("post_nms_topn: 0", "must be above 0"),
        ("scale: 8", "needs, for 3 anchors, scores (N, 6, H, W)"),
    ],
)
def test_mistakes(fields: str, message: str) -> None:
    with pytest.raises(LayerError) as error:
        graph_of(
            'layer { name: "in" type: "Input" top: "a" top: "b" top: "c" input_param { shape { dim: [1, 18, 2, 2] } '
            "shape { dim: [1, 36, 2, 2] } shape { dim: [1, 3] } } } "
            'layer { name: "p" type: "Proposal" bottom: "a" bottom: "b" bottom: "c" top: "r" '
            f"proposal_param {{ {fields} }} }}"
        )
    assert message in str(error.value)


def boxes_of_the_fork(scores: np.ndarray, moves: np.ndarray, size: tuple[float, float, float]) -> list[list[float]]:
    """The rows of the first family's Caffe for one image, step by step: its filter of small boxes skips the last."""
    height, width, scale = size
    base = [(23, 12), (16, 16), (11, 22)]  # of ratio 0.5, 1 and 2 of a square of 16
    anchors = [(w * s, h * s) for w, h in base for s in (8, 16, 32)]
    boxes, confidence = [], []
    for number, (w, h) in enumerate(anchors):
        for row in range(scores.shape[1]):
            for column in range(scores.shape[2]):
                dx, dy, dw, dh = moves[4 * number : 4 * number + 4, row, column]
                x, y = 8 + 16 * column + w * dx, 8 + 16 * row + h * dy
                half_w, half_h = w * math.exp(dw) / 2, h * math.exp(dh) / 2
                corners = [x - half_w, y - half_h, x + half_w, y + half_h]
                limits = (width - 1, height - 1) * 2
                boxes.append([max(min(c, limit), 0) for c, limit in zip(corners, limits, strict=True)])
                confidence.append(scores[9 + number, row, column])
    large = [min(x2 - x1, y2 - y1) + 1 >= 24 * scale for x1, y1, x2, y2 in boxes]
    kept: list[list[float]] = []
    for place in sorted(range(len(boxes)), key=lambda place: -confidence[place]):
        if (large[place] or place == len(boxes) - 1) and all(overlap(boxes[place], box) <= 0.5 for box in kept):
            kept.append(boxes[place])
    return kept[:8]


def overlap(one: list[float], other: list[float]) -> float:
    def area(x1: float, y1: float, x2: float, y2: float) -> float:
        return max(x2 - x1 + 1, 0) * max(y2 - y1 + 1, 0)

    common = area(*map(max, one[:2], other[:2]), *map(min, one[2:], other[2:]))
    return common / (area(*one) + area(*other) - common)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spared", [True, False])
def test_the_first_family_spares_the_last_box(seed: int, spared: bool) -> None:
    """A fork gave 8 rows where bpt gave 7: the fork's loop over small boxes ends before the last one."""
    generator = np.random.default_rng(seed)
    scores, moves = generator.random((18, 5, 6), np.float32), generator.normal(0, 0.3, (36, 5, 6)).astype(np.float32)
    if spared:
        moves[32, -1, -1] = 3  # the last box of all lies beyond the right side of the image: one column wide
    given = [torch.from_numpy(scores)[None], torch.from_numpy(moves)[None], torch.tensor([[80.0, 96, 1]])]
    fields = "max_rois: 8 rpn_min_size: 24 rpn_nms_thresh: 0.5 pre_nms_topn: 300"
    body = f'type: "Proposal" proposal_param {{ feat_stride: 16 {fields} }}'
    rows = one_layer(body, *(tuple(bottom.shape) for bottom in given))(*given)
    expected = boxes_of_the_fork(scores, moves, (80, 96, 1))
    assert rows.shape == (len(expected), 5)
    torch.testing.assert_close(rows[:, 1:], torch.tensor(expected), rtol=1e-5, atol=1e-3)


def test_the_second_family_drops_the_last_box_too() -> None:
    given = bottoms(1)
    given[1][0, 32, -1, -1] = 3
    rows, _ = tops(SECOND, given)
    assert (rows[:, 3] - rows[:, 1] + 1).min() >= 8
    assert len(tops(FIRST, given)[0]) >= len(rows)
