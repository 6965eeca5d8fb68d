"""Proposal: its two families of names, rows of several images, and what its text can get wrong.

What a fork's Proposal makes: test_golden.py.
"""

from __future__ import annotations

import pytest
import torch

from bpt.errors import LayerError
from tests.golden_cases import graph_of
from tests.one_layer import one_layer, tops_of

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
